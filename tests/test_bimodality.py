import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.special import ndtr
from scipy.stats import binom

from bayes_attn import InvalidInput
from bayes_attn.bimodality import Mixture, ashmans_d, dip_test, gaussian_mixture

REPEATS = 60
LEVEL = 0.05
MOST_REJECTIONS = int(binom.ppf(0.999, REPEATS, LEVEL))
"""Of `REPEATS` tests at `LEVEL`, by chance: 9."""


def autoregressive(generator: np.random.Generator, chains: int, scans: int, memory: float) -> np.ndarray:
    """Unit-variance AR(1) series around 0, each from its stationary law."""
    noise = generator.normal(size=(chains, scans + 1000)) * np.sqrt(1 - memory**2)
    return lfilter([1.0], [1.0, -memory], noise, axis=1)[:, 1000:]


def repeated(generator: np.random.Generator, values: np.ndarray, share: float) -> np.ndarray:
    """The same chains with a share of their scans rejected: there, the value before is repeated."""
    scans = np.arange(values.shape[1])
    moved = generator.random(values.shape) >= share
    moved[:, 0] = True
    return np.take_along_axis(values, np.maximum.accumulate(np.where(moved, scans, 0), axis=1), axis=1)


def switching(generator: np.random.Generator, rate: float, distance: float, scans: int = 2000) -> np.ndarray:
    """Four chains between two unit normals, which they change at `rate` per scan."""
    phase = np.cumsum(generator.random((4, scans)) < rate, axis=1) + generator.integers(0, 2, size=(4, 1))
    return distance * (phase % 2) + generator.normal(size=(4, scans))


def p_value(values: np.ndarray, seed: int = 0) -> float:
    return dip_test(values, seed=seed, surrogates=60).p_value


@pytest.mark.parametrize("memory", [0.0, 0.9, 0.99])
def test_false_alarms_of_the_dip_test(memory: float, random_numbers: np.random.Generator) -> None:
    """One hump, uniform (the least favourable) or normal: at level 5 %, at most 9 alarms in 60 (99.9 % binomial)."""
    for marginal in (ndtr, np.asarray):
        found = [p_value(marginal(autoregressive(random_numbers, 4, 1000, memory)), i) for i in range(REPEATS)]
        assert np.sum(np.array(found) <= LEVEL) <= MOST_REJECTIONS
        # Against the uniform law the p-value is uniform, not only large.
        if marginal is ndtr:
            assert 0.3 < np.median(found) < 0.8


@pytest.mark.parametrize(("memory", "share"), [(0.0, 0.5), (0.9, 0.2), (0.0, 0.98)])
def test_rejected_proposals_raise_no_alarms(memory: float, share: float, random_numbers: np.random.Generator) -> None:
    """Ties are steps of the empirical distribution function; at most 9 alarms in 60."""
    found = [
        p_value(repeated(random_numbers, ndtr(autoregressive(random_numbers, 4, 1000, memory)), share), i)
        for i in range(REPEATS)
    ]
    assert np.sum(np.array(found) <= LEVEL) <= MOST_REJECTIONS


def test_the_classical_table_is_far_too_confident(random_numbers: np.random.Generator) -> None:
    """The same uniform series: the table for independent draws alarms in more than 40 % of 60 repeats."""
    from diptest import diptest

    found = [diptest(ndtr(autoregressive(random_numbers, 4, 1000, 0.99)).ravel())[1] for _ in range(REPEATS)]
    assert np.mean(np.array(found) <= LEVEL) > 0.4


def test_power_of_the_dip_test(random_numbers: np.random.Generator) -> None:
    for distance in (3.0, 4.0):
        found = dip_test(switching(random_numbers, 0.05, distance))
        assert found.p_value == pytest.approx(1 / 201)
        assert 0.01 < found.dip <= 0.25


@pytest.mark.parametrize("distance", [3.0, 5.0, 20.0])
def test_stuck_chains_are_no_evidence_for_the_dip_test(distance: float, random_numbers: np.random.Generator) -> None:
    """Each chain in one mode and never in the other."""
    stuck = random_numbers.normal(size=(4, 2000)) + distance * np.array([0, 1, 0, 1])[:, None]
    assert dip_test(stuck).p_value > 0.1
    # Whereas in the table for independent draws this is proof.
    from diptest import diptest

    assert diptest(stuck.ravel())[1] < 1e-3


def test_dip_of_a_known_sample() -> None:
    """Half of the values here, half there: 1/4, the largest there is. A constant has no dip."""
    assert dip_test(np.tile([0.0, 1.0], (2, 500))).dip == pytest.approx(0.25, abs=0.01)
    assert dip_test(np.ones((4, 50))) == dip_test(np.zeros((2, 10)))
    assert dip_test(np.ones((4, 50))).p_value == 1.0


def test_dip_test_repeats_and_is_free_of_units(random_numbers: np.random.Generator) -> None:
    values = ndtr(autoregressive(random_numbers, 4, 12_000, 0.9))
    found, moved = dip_test(values, seed=3), dip_test(7 - 1e-6 * values, seed=3)
    assert found == dip_test(values, seed=3)
    assert moved.dip == pytest.approx(found.dip, rel=1e-6)
    with pytest.raises(InvalidInput, match="dip_test: `surrogates` must be an integer"):
        dip_test(values, surrogates=0)


def test_mixture_of_known_gaussians(random_numbers: np.random.Generator) -> None:
    """Weight 0.3 at 0 +- 0.01, weight 0.7 at 0.1 +- 0.02."""
    second = random_numbers.random((4, 5000)) < 0.7
    values = np.where(second, 0.1, 0.0) + np.where(second, 0.02, 0.01) * random_numbers.normal(size=second.shape)
    found = gaussian_mixture(values, 20_000.0)
    np.testing.assert_allclose(found.means, [0.0, 0.1], atol=0.001)
    np.testing.assert_allclose(found.standard_deviations, [0.01, 0.02], rtol=0.05)
    np.testing.assert_allclose(found.weights, [0.3, 0.7], atol=0.02)
    assert found.bic_difference > 1000
    assert ashmans_d(found) == pytest.approx(np.sqrt(2) * 0.1 / np.hypot(0.01, 0.02), rel=0.05)


def test_one_gaussian_is_preferred_where_there_is_one(random_numbers: np.random.Generator) -> None:
    """At most 1 false alarm in 20."""
    alarms = 0
    for memory in (0.0, 0.9):
        effective = 4 * 500 * (1 - memory) / (1 + memory)
        for _ in range(10):
            found = gaussian_mixture(autoregressive(random_numbers, 4, 500, memory), effective)
            alarms += found.bic_difference > 0
    assert alarms <= 1


def test_the_evidence_scales_with_the_effective_sample_size(random_numbers: np.random.Generator) -> None:
    """BIC difference = 2 ESS (gain per draw) - 3 ln ESS."""
    values = switching(random_numbers, 0.05, 3.0, scans=500)
    sizes = np.array([10.0, 100.0, 1000.0])
    found = np.array([gaussian_mixture(values, size).bic_difference for size in sizes])
    gain = (found + 3 * np.log(sizes)) / (2 * sizes)
    np.testing.assert_allclose(gain, gain[0], rtol=1e-6)
    assert gain[0] > 0
    assert found[0] < 0 < found[2]
    # More draws than there are, there cannot be.
    assert gaussian_mixture(values, 1e6).bic_difference == gaussian_mixture(values, 2000.0).bic_difference


def test_a_skewed_peak_fools_the_mixture_but_not_the_dip(random_numbers: np.random.Generator) -> None:
    values = np.exp(0.5 * autoregressive(random_numbers, 4, 2000, 0.5))
    assert gaussian_mixture(values, 2000.0).bic_difference > 50
    assert p_value(values) > 0.5


def test_mixture_refusals() -> None:
    values = np.arange(20.0).reshape(2, 10)
    for size in (0.5, np.nan, np.inf):
        with pytest.raises(InvalidInput, match="gaussian_mixture: `effective_sample_size` must be a finite number"):
            gaussian_mixture(values, size)
    with pytest.raises(InvalidInput, match="gaussian_mixture: `values` must not all be the same"):
        gaussian_mixture(np.ones((2, 10)), 10.0)


def test_ashmans_d_in_closed_form() -> None:
    mixture = Mixture(0.0, np.array([1.0, 4.0]), np.array([0.6, 0.8]), np.array([0.5, 0.5]))
    assert ashmans_d(mixture) == pytest.approx(np.sqrt(2) * 3.0)
