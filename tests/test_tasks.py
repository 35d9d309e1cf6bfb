import jax
import numpy as np
import pytest
from scipy import stats

from bayes_attn import CopyTask, InvalidInput
from bayes_attn.tasks import count_tensor


def test_sources_on_the_ring_and_in_the_causal_task() -> None:
    ring, causal = CopyTask(4, 2), CopyTask(4, 2, causal=True)
    assert ring.queries.tolist() == [0, 1, 2, 3]
    assert ring.sources.tolist() == [3, 0, 1, 2]
    assert ring.num_targets == 4
    assert ring.visible.all()
    assert causal.queries.tolist() == [1, 2, 3]
    assert causal.sources.tolist() == [0, 1, 2]
    assert causal.num_targets == 3
    assert [int(row.sum()) for row in causal.visible] == [1, 2, 3, 4]


def test_count_tensor_by_loops(random_numbers: np.random.Generator) -> None:
    tokens = random_numbers.integers(0, 3, size=(6, 4))
    counts = count_tensor(tokens, 3, np.array([0, 2, 6]))
    for p, prefix in enumerate([0, 2, 6]):
        expected = np.zeros((4, 3, 4, 3))
        for sequence in tokens[:prefix]:
            for j in range(4):
                for k in range(4):
                    expected[j, sequence[j], k, sequence[k]] += 1
        np.testing.assert_array_equal(counts[p], expected)


def test_drawn_tokens_are_uniform(key: jax.Array) -> None:
    tokens = np.asarray(CopyTask(8, 5).draw_tokens(key, 4000))
    assert tokens.shape == (4000, 8)
    frequency = np.bincount(tokens.ravel(), minlength=5) / tokens.size
    # Five standard errors: false alarm 3e-6.
    assert np.abs(frequency - 0.2).max() < 5 * np.sqrt(0.16 / tokens.size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 2, "vocab": 4}, "`length` must be an integer of at least 3, got 2"),
        ({"length": 4, "vocab": 1}, "`vocab` must be an integer of at least 2, got 1"),
        ({"length": True, "vocab": 4}, "`length` must be an integer"),
    ],
)
def test_bad_sizes_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        CopyTask(**arguments)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.zeros((3, 4)), "must hold integers, got dtype float64"),
        (np.zeros(4, int), "must be two-dimensional"),
        (np.zeros((0, 4), int), "with at least one sequence"),
        (np.zeros((3, 5), int), "must have rows of `length` = 4 positions, got rows of 5"),
        (np.array([[0, 1, 2, 0], [0, 1, 3, 0]]), "must lie in 0 ... 2 .*got 3 at sequence 1, position 2"),
        (np.array([[0, 1, -1, 0]]), "got -1 at sequence 0, position 2"),
    ],
)
def test_bad_tokens_are_refused(tokens: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        CopyTask(4, 3).check_tokens(tokens)


def test_tokens_follow_the_frequencies(key: jax.Array) -> None:
    """A chi-square test at a false-alarm rate of 1e-4."""
    task = CopyTask(20, 3, frequencies=(0.6, 0.3, 0.1))
    counts = np.bincount(np.asarray(task.draw_tokens(key, 500)).ravel(), minlength=3)
    assert stats.chisquare(counts, np.array([0.6, 0.3, 0.1]) * 10_000).pvalue > 1e-4


@pytest.mark.parametrize(
    ("frequencies", "rule"),
    [
        ((0.5, 0.5), "must be 3 numbers"),
        ((0.5, 0.6, -0.1), "must not be negative"),
        ((1.0, 0.0, 0.0), "must have two above 0"),
        ((0.5, 0.3, 0.1), "must add up"),
    ],
)
def test_bad_frequencies_are_refused(frequencies: tuple[float, ...], rule: str) -> None:
    with pytest.raises(InvalidInput, match=f"CopyTask: `frequencies` {rule}"):
        CopyTask(5, 3, frequencies=frequencies)
