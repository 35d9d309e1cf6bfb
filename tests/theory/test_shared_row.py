"""The exact law of a row that all positions share, against weighted prior draws, scipy and sampled chains."""

import jax
import numpy as np
import pytest
from scipy import special, stats

from bayes_attn import CopyTask, InvalidInput, Population, RelativeBias, Schedule, load_ladder, sample, theory
from bayes_attn.diagnostics import estimate
from bayes_attn.theory.shared_row import exact_law, find, log_bessel


@pytest.mark.parametrize(("length", "vocab", "load"), [(8, 6, 0.5), (8, 6, 1.5), (5, 3, 2.0), (16, 16, 0.3)])
def test_against_weighted_prior_draws(
    length: int, vocab: int, load: float, random_numbers: np.random.Generator
) -> None:
    """U written out once more; means of m, m^2 and q at 4.5 standard errors (false alarm 1e-4 in all)."""
    posterior = Population(CopyTask(length, vocab), prior=RelativeBias, value_scale=0.9)
    law = exact_law(posterior, load)
    weights = np.exp(random_numbers.standard_normal((400_000, length)))
    weights /= weights.sum(1, keepdims=True)
    m, q = weights[:, 1], (weights**2).sum(1)
    growth = 1 + load * q
    log_boost = -0.5 * vocab * (vocab - 1) * (np.log(growth) - (load * m / 0.9) ** 2 / growth)
    boost = np.exp(log_boost - log_boost.max())
    mass = np.exp(law.log_density - law.log_density.max()) * law.copy_mass * (1 - law.copy_mass)
    for drawn, exact in ((m, law.copy_mass), (m**2, law.copy_mass**2), (q, law.participation)):
        mean = np.average(drawn, weights=boost)
        error = np.sqrt(np.mean((boost * (drawn - mean)) ** 2) / len(m)) / boost.mean()
        assert abs(np.average(exact, weights=mass) - mean) < 4.5 * error


def test_the_bessel_function_where_doubles_reach_and_where_they_do_not() -> None:
    argument = np.array([0.5, 5.0, 60.0, 900.0])
    for order in (0.0, 2.0, 9.0, 40.0):
        with np.errstate(over="ignore"):
            exact = np.log(special.iv(order, argument[:3]))
        np.testing.assert_allclose(log_bessel(order, argument)[:3], exact, rtol=1e-10)
    # Beyond: the noncentral chi-square's density is normalised through it.
    degrees, noncentrality = 9_900, 40.0
    y = np.linspace(8_500, 11_500, 4_001)
    log_density = -0.5 * (y + noncentrality) + (degrees / 4 - 0.5) * np.log(y / noncentrality)
    log_density += log_bessel(degrees / 2 - 1, np.sqrt(noncentrality * y)) - np.log(2)
    assert np.trapezoid(np.exp(log_density), y) == pytest.approx(1.0, abs=1e-6)
    spread = np.sqrt(2 * (degrees + 2 * noncentrality))
    mean = np.trapezoid(y * np.exp(log_density), y)
    assert mean == pytest.approx(degrees + noncentrality, abs=1e-3 * spread)
    assert stats.ncx2.mean(degrees, noncentrality) == degrees + noncentrality


def test_coexistence_of_a_shared_row() -> None:
    """At the critical load the two sides of the valley weigh the same; the density has its two peaks where stated."""
    posterior = Population(CopyTask(40, 8), prior=RelativeBias)
    found = theory.transition(posterior)
    assert found.order == "first"
    (density,) = theory.densities(posterior, [found.critical_load])
    m, p = density
    above = m > found.copy_mass_barrier
    assert np.trapezoid(np.where(above, p, 0.0), m) == pytest.approx(0.5, abs=2e-3)
    assert m[above][np.argmax(p[above])] == pytest.approx(found.copy_mass_copy, abs=0.01)
    valley = np.interp(found.copy_mass_barrier, m, p)
    assert np.log(p[above].max() / valley) == pytest.approx(found.barrier, abs=0.02)
    assert found.spinodal_low < found.critical_load < found.spinodal_high
    # Many values against one row: the copy mass grows continuously, from about load 1.
    phases, steepest = find(Population(CopyTask(32, 32), prior=RelativeBias), resolution=0.75)
    assert phases is None
    assert steepest == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_against_sampled_biases() -> None:
    """Means of m and q along a ladder, at 4.5 standard errors (false alarm 4e-5 in all)."""
    posterior = Population(CopyTask(16, 6), prior=RelativeBias)
    loads = [0.0, 0.6, 1.2, 1.8, 2.4]
    keys = jax.random.split(jax.random.key(5), (4, 5))
    start = jax.vmap(jax.vmap(posterior.sample_prior))(keys)
    samples = sample(posterior, load_ladder(loads), start, Schedule(600, 200, 20), seed=3)
    for rung in (2, 3, 4):
        law = exact_law(posterior, loads[rung])
        mass = np.exp(law.log_density - law.log_density.max()) * law.copy_mass * (1 - law.copy_mass)
        for values, exact in zip(samples.order_parameters[:2], (law.copy_mass, law.participation), strict=True):
            sampled = estimate(values[:, :, rung])
            assert abs(sampled.mean - np.average(exact, weights=mass)) < 4.5 * sampled.error


def test_other_tokens_and_saddle_points_are_refused_by_name() -> None:
    posterior = Population(CopyTask(5, 3, frequencies=(0.5, 0.3, 0.2)), prior=RelativeBias)
    with pytest.raises(
        InvalidInput, match="`frequencies` must be uniform with the prior RelativeBias, got '0.2 ... 0.5'"
    ):
        theory.transition(posterior)
    with pytest.raises(InvalidInput, match="`prior` must be IidLogits for saddle points, got 'RelativeBias'"):
        theory.softmax.s_curve(Population(CopyTask(5, 3), prior=RelativeBias))
