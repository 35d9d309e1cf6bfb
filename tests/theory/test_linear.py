"""The closed form for linear attention: published numbers, exact limits, and brute-force sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from bayes_attn import CopyTask, Population, Schedule, load_ladder, sample, theory
from bayes_attn.diagnostics import estimate
from bayes_attn.theory.linear import critical_load, order_parameter_law

# theory.md section 7, L = V = 16: load -> mean |m|, mean m^2, mean q.
PUBLISHED = {
    0.5: (0.0458, 0.0033, 0.735),
    1.0: (0.0498, 0.0039, 0.624),
    1.6: (0.0696, 0.0075, 0.548),
    2.0: (0.139, 0.0273, 0.5255),
    3.0: (0.569, 0.326, 0.66),
    5.0: (0.772, 0.597, 0.80),
}
# One unit of the last digit shown; at load 5 the published figures are those of a sampled run, good to 0.002.
UNITS = {0.5: (1e-4, 1e-4, 1e-3), 1.0: (1e-4, 1e-4, 1e-3), 1.6: (1e-4, 1e-4, 1e-3), 2.0: (1e-3, 1e-4, 5e-4)}
UNITS |= {3.0: (1e-3, 1e-3, 1e-2), 5.0: (2e-3, 2e-3, 1e-2)}


@pytest.mark.parametrize("load", PUBLISHED)
def test_published_numbers(linear_16: Population, load: float) -> None:
    law = order_parameter_law(linear_16, load)
    for value, published, unit in zip(law[1:], PUBLISHED[load], UNITS[load], strict=True):
        assert abs(value - published) <= 1.01 * unit + 0.5 * unit


def test_without_data_the_law_is_the_prior(linear_16: Population) -> None:
    """m is normal with variance s^2 / L^2, and the mean of q is s^2."""
    law = order_parameter_law(linear_16, 0.0)
    assert law.absolute_copy_mass == pytest.approx(np.sqrt(2 / np.pi) / 16, rel=1e-6)
    assert law.squared_copy_mass == pytest.approx(1 / 256, rel=1e-6)
    assert law.participation == pytest.approx(1.0, rel=1e-6)


def test_against_weighted_prior_draws(random_numbers: np.random.Generator) -> None:
    """Matrices drawn from the prior and weighted by the likelihood: no order-parameter density involved."""
    posterior = Population(CopyTask(3, 2), "linear", logit_scale=1.2, value_scale=0.9)
    load, draws = 1.5, 400_000
    matrices = random_numbers.normal(scale=1.2 / np.sqrt(3), size=(draws, 3, 3))
    m = np.mean([matrices[:, i, (i - 1) % 3] for i in range(3)], axis=0)
    q = (matrices**2).sum((1, 2)) / 3
    sums = matrices.sum(2)
    m_u, q_u = sums.mean(1), (sums**2).mean(1)

    def direction(overlap: np.ndarray, power: np.ndarray) -> np.ndarray:
        return np.log(1 + load * power) - (load * overlap / 0.9) ** 2 / (1 + load * power)

    weight = np.exp(-(direction(m, q) + direction(m_u, q_u)))
    law = order_parameter_law(posterior, load)
    for values, exact in ((abs(m), law.absolute_copy_mass), (m**2, law.squared_copy_mass), (q, law.participation)):
        mean = np.average(values, weights=weight)
        error = np.sqrt(np.mean((weight * (values - mean)) ** 2) / draws) / weight.mean()
        assert abs(mean - exact) < 4.5 * error


@pytest.mark.parametrize(("logit_scale", "value_scale"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.6), (1.5, 1.3)])
def test_critical_load_is_where_the_mean_field_action_turns(logit_scale: float, value_scale: float) -> None:
    """Second derivative in m of the action of section 4a at m = 0, on the stationary q, by root finding."""
    length, vocab = 16, 12
    posterior = Population(CopyTask(length, vocab), "linear", logit_scale, value_scale)
    pairs = vocab * (vocab - 1)

    def stationary(load: float) -> float:
        def slope(q: float) -> float:
            return pairs * load / (1 + load * q) + length**2 * (1 / logit_scale**2 - 1 / q)

        return brentq(slope, 1e-9, 1e3)

    def curvature(load: float) -> float:
        q = stationary(load)
        return length**2 / q - pairs * (load / value_scale) ** 2 / (1 + load * q)

    assert critical_load(posterior) == pytest.approx(brentq(curvature, 1e-3, 1e2), rel=1e-9)


def test_transition_of_linear_attention(linear_16: Population) -> None:
    found = theory.transition(linear_16)
    assert found.order == "second"
    assert found.critical_load == pytest.approx(1 + 256 / 240)
    assert found.critical_load_error == 0.0
    assert found.critical_data == pytest.approx(found.critical_load * 16)
    assert (found.spinodal_low, found.spinodal_high, found.barrier) == (None, None, None)


def test_the_density_is_normalised_and_symmetric(linear_16: Population) -> None:
    m, p = theory.densities(linear_16, [3.0])[0]
    assert np.trapezoid(p, m) == pytest.approx(1.0)
    np.testing.assert_allclose(p, p[::-1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("length", "vocab", "scale", "load"), [(4, 64, 1.0, 1.0), (4, 64, 1.0, 1.4), (8, 32, 3.0, 1.4)]
)
def test_against_sampled_matrices_where_v_exceeds_l(length: int, vocab: int, scale: float, load: float) -> None:
    """Far from the prior; at 4.5 standard errors (false alarm 4e-5 in all)."""
    posterior = Population(CopyTask(length, vocab), "linear", scale)
    load *= critical_load(posterior)
    start = jnp.stack([jax.vmap(posterior.sample_copy)(jax.random.split(jax.random.key(2), 4))] * 2, axis=1)
    samples = sample(posterior, load_ladder([0.95 * load, load]), start, Schedule(2000, 400, 20), seed=9)
    law = order_parameter_law(posterior, load)
    m, q = (samples.order_parameters[i][:, :, 1] for i in (0, 1))
    for values, exact in ((abs(m), law.absolute_copy_mass), (q, law.participation)):
        sampled = estimate(values)
        assert abs(sampled.mean - exact) < 4.5 * sampled.error
