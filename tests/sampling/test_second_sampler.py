"""numpyro's NUTS on the same density: a sampler that shares no code with the engine's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS

from bayes_attn import Population, Schedule, load_ladder, sample
from bayes_attn.diagnostics import estimate

pytestmark = pytest.mark.slow


def test_both_samplers_agree_in_each_phase(softmax_16: Population) -> None:
    """Mean m and q at one load in each phase, at 4.5 combined standard errors (false alarm 3e-5 in all)."""
    loads = [1.6, 3.4]
    keys = jax.random.split(jax.random.key(8), (2, 2))
    starts = jnp.stack([jax.vmap(softmax_16.sample_prior)(keys[:, 0]), jax.vmap(softmax_16.sample_copy)(keys[:, 1])], 1)
    ours = sample(softmax_16, load_ladder(loads), starts, Schedule(600, 200, 20), seed=2)
    for rung, load in enumerate(loads):

        def potential(logits: jax.Array, load: float = load) -> jax.Array:
            return -softmax_16.log_prior(logits) - softmax_16.log_likelihood(logits, jnp.asarray(load))

        nuts = MCMC(NUTS(potential_fn=potential), num_warmup=400, num_samples=1500, progress_bar=False)
        nuts.run(jax.random.key(rung), init_params=starts[0, rung])
        theirs = jax.vmap(softmax_16.order_parameters)(nuts.get_samples())
        for name in ("copy_mass", "participation"):
            a = estimate(getattr(ours.order_parameters, name)[:, :, rung])
            b = estimate(np.asarray(getattr(theirs, name))[None])
            assert abs(a.mean - b.mean) < 4.5 * np.hypot(a.error, b.error), (load, name)
