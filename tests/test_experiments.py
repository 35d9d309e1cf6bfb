import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "experiments"))

from text_tokens import text_tokens

from bayes_attn import CopyTask


def test_text_becomes_tokens() -> None:
    tokens = text_tokens("abba cab! ABBA cab? Zebra, abba " * 4, length=8, vocab=4, sequences=5, seed=0)
    assert tokens.shape == (5, 8)
    CopyTask(8, 4).check_tokens(tokens)
    windows = np.array(list("abba cab abba cab zebra abba ")).tolist()
    frequent = ["a", "b", " "]
    expected = [frequent.index(c) if c in frequent else 3 for c in windows[:8]]
    everything = text_tokens("abba cab! ABBA cab? Zebra, abba " * 4, length=8, vocab=4, sequences=99, seed=0)
    assert expected in everything.tolist()
