"""The copy task: which key each query must copy, its token sequences, and the count tensor T (theory, sections 1-2)."""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_attn.errors import InvalidInput, require, require_integer


@dataclass(frozen=True)
class CopyTask:
    """Copy the token of the previous position.

    Parameters
    ----------
    length: positions L in a sequence, at least 3.
    vocab: tokens V in the vocabulary, at least 2.
    causal: if False, positions lie on a ring and every query i has the source (i - 1) mod L. If True, query i sees
        the keys j <= i, its source is i - 1, and query 0 has no target.
    frequencies: of the V tokens, which are independent: at least 0, two of them positive, adding up to 1. Default:
        uniform.

    Raises
    ------
    InvalidInput: a parameter is of the wrong kind, too small, or breaks its rule.
    """

    length: int
    vocab: int
    causal: bool = False
    frequencies: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        require_integer("CopyTask", "length", self.length, least=3)
        require_integer("CopyTask", "vocab", self.vocab, least=2)
        require(isinstance(self.causal, bool), "CopyTask", "causal", "must be True or False", self.causal)
        if self.frequencies is not None:
            given = np.asarray(self.frequencies)
            require(len(given) == self.vocab, "CopyTask", "frequencies", f"must be {self.vocab} numbers", len(given))
            require(bool(np.all(given >= 0)), "CopyTask", "frequencies", "must not be negative", float(given.min()))
            require(
                int(np.count_nonzero(given)) > 1, "CopyTask", "frequencies", "must have two above 0", self.frequencies
            )
            total = float(given.sum())
            require(abs(total - 1) < 1e-9, "CopyTask", "frequencies", "must add up to 1", total)

    @property
    def token_frequencies(self) -> Float[np.ndarray, " vocab"]:
        """Probability of each token."""
        if self.frequencies is None:
            return np.full(self.vocab, 1 / self.vocab)
        return np.asarray(self.frequencies, dtype=float)

    @property
    def queries(self) -> Int[np.ndarray, " target"]:
        """The queries that have a target."""
        return np.arange(1 if self.causal else 0, self.length)

    @property
    def sources(self) -> Int[np.ndarray, " target"]:
        """The key that each of `queries` must copy."""
        return (self.queries - 1) % self.length

    @property
    def num_targets(self) -> int:
        """Queries per sequence that have a target: L on the ring, L - 1 in the causal task."""
        return self.length - 1 if self.causal else self.length

    @property
    def visible(self) -> Bool[np.ndarray, "query key"]:
        """Which keys each query may attend to."""
        everything = np.ones((self.length, self.length), dtype=bool)
        return np.tril(everything) if self.causal else everything

    def draw_tokens(self, key: jax.Array, num_sequences: int) -> Int[Array, "sequence position"]:
        """Independent tokens with the task's frequencies, integers from 0 to V - 1."""
        require_integer("CopyTask.draw_tokens", "num_sequences", num_sequences, least=1)
        if self.frequencies is not None:
            shape = (num_sequences, self.length)
            return jax.random.choice(key, self.vocab, shape, p=np.asarray(self.frequencies))
        return jax.random.randint(key, (num_sequences, self.length), 0, self.vocab)

    def check_tokens(self, tokens: np.ndarray, owner: str = "CopyTask") -> Int[np.ndarray, "sequence position"]:
        """`tokens` as an integer array of shape (P, L), or a refusal.

        Raises
        ------
        InvalidInput: not integer, not two-dimensional, no sequence, rows not of the task's length, or a token
            outside 0 ... V - 1.
        """
        tokens = np.asarray(tokens)
        if not np.issubdtype(tokens.dtype, np.integer):
            raise InvalidInput(f"{owner}: `tokens` must hold integers, got dtype {tokens.dtype}.")
        if tokens.ndim != 2 or tokens.shape[0] == 0:
            rule = "must be two-dimensional (sequences, positions) with at least one sequence"
            raise InvalidInput(f"{owner}: `tokens` {rule}, got shape {tokens.shape}.")
        if tokens.shape[1] != self.length:
            rule = f"must have rows of `length` = {self.length} positions"
            raise InvalidInput(f"{owner}: `tokens` {rule}, got rows of {tokens.shape[1]}.")
        outside = (tokens < 0) | (tokens >= self.vocab)
        if outside.any():
            sequence, position = (int(i) for i in np.argwhere(outside)[0])
            rule = f"must lie in 0 ... {self.vocab - 1} (`vocab` = {self.vocab})"
            where = f"{int(tokens[sequence, position])} at sequence {sequence}, position {position}"
            raise InvalidInput(f"{owner}: `tokens` {rule}, got {where}.")
        return tokens.astype(np.int32)


def count_tensor(
    tokens: Int[np.ndarray, "sequence position"], vocab: int, prefixes: Int[np.ndarray, " prefix"]
) -> Float[np.ndarray, "prefix position vocab position vocab"]:
    """T[p, j, v, k, w]: how many of the first `prefixes[p]` sequences have token v at j and token w at k.

    The sufficient statistic of a data set (theory, section 2): the posterior needs the sequences through nothing else.
    `prefixes` must not decrease.
    """
    length = tokens.shape[1]
    size = length * vocab
    counts = np.zeros((len(prefixes), size, size))
    total = np.zeros((size, size))
    columns = np.arange(length) * vocab
    done = 0
    for p, prefix in enumerate(prefixes):
        one_hot = np.zeros((int(prefix) - done, size))
        np.put_along_axis(one_hot, columns + tokens[done : int(prefix)], 1.0, axis=1)
        total += one_hot.T @ one_hot
        counts[p] = total
        done = int(prefix)
    return counts.reshape(len(prefixes), length, vocab, length, vocab)
