"""A first-order transition of somebody else's, solved exactly at finite size: mean-field Potts, q = 3 and 4."""

import itertools

import numpy as np
import pytest
from potts import Potts, enumerate_potts, phase_quadrature
from scipy.optimize import brentq

from bayes_attn import Schedule, Starts, sample
from bayes_attn.diagnostics import estimate
from bayes_attn.free_energy import phase_normalisations, pool, stepping_stone
from bayes_attn.sampling import load_path


def ordered_weight(colours: int, spins: int, beta: float) -> float:
    """Exact probability that the largest share is above one half."""
    probability, _ = enumerate_potts(colours, spins, beta)
    return float(probability[spins // 2 + 1 :].sum())


def equal_weight(colours: int, spins: int) -> float:
    critical = 2 * (colours - 1) * np.log(colours - 1) / (colours - 2)
    return float(brentq(lambda beta: ordered_weight(colours, spins, beta) - 0.5, 0.9 * critical, 1.05 * critical))


def test_the_enumeration_itself() -> None:
    """Against a sum over all 3^8 states, and equal-weight points known from elsewhere (cut at one half, q = 3)."""
    spins = np.stack(np.meshgrid(*[np.arange(3)] * 8)).reshape(8, -1)
    counts = np.stack([(spins == colour).sum(0) for colour in range(3)])
    weight = np.exp(2.5 / 16 * ((counts - 8 / 3) ** 2).sum(0))
    probability, log_mean = enumerate_potts(3, 8, 2.5)
    assert log_mean == pytest.approx(np.log(weight.mean()), abs=1e-12)
    for largest in range(9):
        expected = weight[counts.max(0) == largest].sum() / weight.sum()
        assert probability[largest] == pytest.approx(expected, abs=1e-12)
    for size, known in ((100, 2.68839), (400, 2.76178), (800, 2.76912)):
        assert equal_weight(3, size) == pytest.approx(known, abs=6e-6)


@pytest.mark.slow
@pytest.mark.parametrize("spins", [100, 800])
@pytest.mark.parametrize("colours", [3, 4])
def test_histograms_equal_weight_and_normalisation(colours: int, spins: int) -> None:
    """At the exact equal-weight point, all at 4.5 standard errors: ten bins, weight and log Z (false alarm 5e-4).

    At q = 4 and N = 800 the barrier is 5 kT, which a path along beta has to nucleate across: five times the draws.
    """
    posterior, beta = Potts(colours, spins), equal_weight(colours, spins)
    samples = sample(
        posterior, load_path([0.0, beta, 1.04 * beta]), Starts((posterior.sample_prior,), 16),
        Schedule(600, 1000 if (colours, spins) == (4, 800) else 200, 20), 3, rungs=16,
    )  # fmt: skip
    rung = int(np.flatnonzero(samples.position == 1.0)[0])
    assert float(samples.path.load[rung]) == pytest.approx(beta)
    fields = np.stack([field[:, :, rung] for field in samples.order_parameters[1:]], axis=-1)
    share = posterior.largest_share(beta, fields, np.random.default_rng(1))
    probability, log_mean = enumerate_potts(colours, spins, beta)

    ordered = estimate((share > 0.5).astype(float))
    assert abs(ordered.mean - 0.5) < 4.5 * ordered.error
    assert ordered.error < 0.03
    edges = np.linspace(1 / colours, 0.85, 11)
    exact_share = np.arange(spins + 1) / spins
    for low, high in itertools.pairwise(edges):
        expected = probability[(exact_share >= low) & (exact_share < high)].sum()
        found = estimate(((share >= low) & (share < high)).astype(float))
        assert abs(found.mean - expected) < 4.5 * max(found.error, 5e-4), (low, high)
    log_ratio = stepping_stone(samples)
    assert abs(log_ratio.value[rung] - log_mean) < 4.5 * max(log_ratio.error[rung], 0.005)
    assert log_ratio.error[rung] < 0.1

    # Each phase by itself, a little before and after as well. The grid's sum is the enumeration's.
    if (colours, spins) == (3, 800):
        loads, cut = beta * np.array([0.99, 1.0, 1.01]), np.sqrt(beta * spins) / 6
        exact = np.stack([phase_quadrature(spins, load, cut) for load in loads])
        assert np.logaddexp(*exact[1]) == pytest.approx(log_mean, abs=1e-9)
        values, errors, difference_errors = phase_normalisations(pool(posterior, samples), loads, cut)
        assert np.all(np.abs(values - exact) < 4.5 * np.maximum(errors, 0.005))
        assert np.all(np.abs(np.diff(values - exact)[:, 0]) < 4.5 * np.maximum(difference_errors, 0.005))
        assert np.all(errors < 0.15)
