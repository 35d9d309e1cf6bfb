"""Theory against sampling where the model is not the published one: other tokens, other rows, other scales."""

import jax
import pytest

from bayes_attn import CopyTask, Population, Schedule, load_ladder, sample, theory
from bayes_attn.diagnostics import estimate

ZIPF = tuple(weight / sum(1 / rank for rank in range(1, 13)) for weight in [1 / rank for rank in range(1, 13)])
MODELS = {
    "frequencies and scales": Population(CopyTask(16, 12, frequencies=ZIPF), logit_scale=1.4, value_scale=0.7),
    "causal": Population(CopyTask(12, 12, causal=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_mean_copy_mass(name: str) -> None:
    """Below, in and above the rise: 5 means at 4 standard errors, and the density's corrections of order 1/L."""
    posterior = MODELS[name]
    centre = theory.transition(posterior).steepest_load
    loads = [multiple * centre for multiple in (0.0, 0.4, 0.7, 0.85, 0.95, 1.05, 1.2, 1.4)]
    keys = jax.random.split(jax.random.key(11), (4, len(loads)))
    start = jax.vmap(jax.vmap(posterior.sample_prior))(keys)
    samples = sample(posterior, load_ladder(loads), start, Schedule(600, 40, 40), seed=4)
    checked = (1, 2, 5, 6, 7)
    for rung, density in zip(checked, theory.densities(posterior, [loads[i] for i in checked]), strict=True):
        sampled = estimate(samples.order_parameters.copy_mass[:, :, rung])
        assert sampled.rhat < 1.02
        assert abs(sampled.mean - density.mean()) < 4 * sampled.error + 0.015 * density.mean(), (name, loads[rung])
