"""Where rungs go, and what the metric learns: against what is known without sampling."""

import numpy as np
import pytest
from scipy.special import erf

from bayes_attn.sampling import adaptation
from bayes_attn.sampling.adaptation import Spread, WarmUp


@pytest.mark.parametrize("warmup", [1, 10, 64, 65, 192, 1_000, 1_200, 50_000])
def test_rounds_double(warmup: int) -> None:
    ends = adaptation.round_ends(warmup)
    assert ends[-1] == warmup
    sizes = np.diff([0, *ends])
    assert np.all(sizes > 0)
    assert np.all(np.abs(sizes[1:] - 2 * sizes[:-1]) <= 2)
    assert sizes[0] >= min(warmup, adaptation.FIRST_ROUND // 2)
    assert all(end % 10 == 0 for end in adaptation.round_ends(10 * warmup, 10))
    assert adaptation.round_ends(10 * warmup, 10)[-1] == 10 * warmup


def rejection(position: np.ndarray) -> np.ndarray:
    """Normal log-density ratios whose barrier from 0 to t is 6 t^2."""
    return erf(np.diff(6 * position**2) * np.sqrt(np.pi) / 2)


def test_rungs_are_spaced_by_the_barrier() -> None:
    """A barrier 6 t^2 in all: equal spacing puts rung k at sqrt(k / n); the interpolation is good to 2 %."""
    position = np.linspace(0, 1, 15)
    spaced = adaptation.spaced(position, rejection(position), 25)
    np.testing.assert_allclose(spaced, np.sqrt(np.linspace(0, 1, 25)), atol=0.02)
    # Once more from there, and it stays.
    np.testing.assert_allclose(adaptation.spaced(spaced, rejection(spaced), 25), spaced, atol=0.02)
    assert np.ptp(rejection(spaced)) < 0.1 * rejection(spaced).mean()


def test_every_leg_keeps_its_ends_and_gets_its_share() -> None:
    legs = np.array([1.0, 0.1, 3.0])
    assert adaptation.intervals(legs, 4).tolist() == [1, 1, 1]
    assert adaptation.intervals(legs, 9).tolist() == [2, 1, 5]
    assert adaptation.enough_rungs(legs) == 1 + 2 + 1 + 6
    position = adaptation.even(3, 10)
    assert position.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2, 7 / 3, 8 / 3, 3])
    spaced = adaptation.spaced(position, np.full(9, 0.3), 13)
    assert {0.0, 1.0, 2.0, 3.0} <= set(spaced.tolist())
    assert np.all(np.diff(spaced) > 0)


def test_the_barrier_does_not_saturate() -> None:
    barrier = np.array([0.01, 0.3, 1.0, 2.0])
    np.testing.assert_allclose(adaptation.barrier(erf(barrier * np.sqrt(np.pi) / 2)), barrier, rtol=1e-6)
    assert adaptation.barrier(np.array([1.0]))[0] > 2.5


def test_the_split_lies_between_two_phases(random_numbers: np.random.Generator) -> None:
    low, high = random_numbers.normal(0.1, 0.02, (4, 300)), random_numbers.normal(0.5, 0.05, (4, 100))
    split = adaptation.threshold(np.concatenate([low, high], axis=1)[..., None])
    assert 0.2 < split[0] < 0.4


def test_the_metric_is_that_of_the_phases_and_not_of_their_distance(random_numbers: np.random.Generator) -> None:
    """Two phases 10 apart with standard deviations 0.5 and 1 along one coordinate, 2 and 2 along the other."""
    draws = random_numbers.normal(size=(4, 2_000, 1, 2)) * np.array([0.5, 2.0])
    second = random_numbers.random((4, 2_000, 1)) < 0.5
    draws[second] = draws[second] * np.array([2.0, 1.0]) + np.array([10.0, 0.0])
    spread = Spread(np.array([5.0]), 2)
    spread.add(draws[..., 0], draws)
    expected = [np.sqrt((0.25 + 1.0) / 2), 2.0]
    np.testing.assert_allclose(spread.scale(np.ones((1, 2)))[0], expected, rtol=0.03)
    # Few draws leave the metric as it was.
    few = Spread(np.array([5.0]), 2)
    few.add(draws[:1, :20, :, 0], draws[:1, :20])
    np.testing.assert_array_equal(few.scale(np.full((1, 2), 0.7)), np.full((1, 2), 0.7))


def test_a_ladder_that_is_too_coarse_grows(random_numbers: np.random.Generator) -> None:
    """Three rungs for a barrier of 6: more are asked for, but never in the last round, which has sampled its own."""
    warmup = WarmUp(448, 1, np.array([0.0, 0.5, 1.0]), moves=True, grows=True, dimension=1)
    assert warmup.ends == [64, 192, 448]
    sizes = []
    for scans in (64, 128, 256):
        rungs = len(warmup.position)
        rejected = np.broadcast_to(rejection(warmup.position), (2, scans, rungs - 1))
        warmup.observe(random_numbers.normal(size=(2, scans, rungs)), rejected, np.zeros((2, scans, rungs, 1)))
        nearest = warmup.end_round(scans, np.full((2, rungs), 0.2))
        sizes.append(len(warmup.position))
        assert (nearest is None) == (sizes[-1] == rungs)
    assert sizes[0] == 9
    assert sizes[1] == sizes[2] >= 12
    assert [one.rungs for one in warmup.rounds] == [3, 9, sizes[1]]
    np.testing.assert_allclose(warmup.position, np.sqrt(np.linspace(0, 1, sizes[2])), atol=0.05)
