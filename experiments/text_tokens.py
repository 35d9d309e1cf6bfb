"""Question: where does real text, whose characters are neither uniform nor independent, put the transition?

This makes the token file for it, from text that Python itself ships (the help topics of `pydoc`, some 390,000
characters): lower-case letters and spaces, the 15 most frequent ones as tokens 0 to 14 and all others as token 15, cut
into windows of 16 characters and shuffled.

    uv run python experiments/text_tokens.py runs/text.npy
    uv run bayes-attn transition --tokens runs/text.npy --out runs/text
"""

from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import tyro
from jaxtyping import Int


def text_tokens(text: str, length: int, vocab: int, sequences: int, seed: int) -> Int[np.ndarray, "sequence position"]:
    """Windows of `length` characters of `text` as tokens; the `vocab` - 1 most frequent characters keep their own."""
    letters = " ".join("".join(c if c.isascii() and c.isalpha() else " " for c in text.lower()).split())
    frequent = [character for character, _ in Counter(letters).most_common(vocab - 1)]
    tokens = np.array([frequent.index(c) if c in frequent else vocab - 1 for c in letters])
    windows = tokens[: len(tokens) // length * length].reshape(-1, length)
    return np.random.default_rng(seed).permutation(windows)[:sequences]


def main(
    file: tyro.conf.Positional[Path], length: int = 16, vocab: int = 16, sequences: int = 200, seed: int = 0
) -> None:
    """Write `sequences` windows of Python's help text to a .npy file."""
    tokens = text_tokens(" ".join(topics.values()), length, vocab, sequences, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.save(file, tokens)
    frequency = np.bincount(tokens.ravel(), minlength=vocab) / tokens.size
    print(f"{file}: {tokens.shape[0]} windows of {length} characters, token frequencies {np.round(frequency, 3)}")


if __name__ == "__main__":
    tyro.cli(main)
