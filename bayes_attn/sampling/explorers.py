"""Local exploration at one point of the path: kernels of blackjax."""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_attn.posterior import Posterior
from bayes_attn.sampling.controls import Controls, log_density

_hmc = blackjax.hmc.build_kernel()


class Exploration(NamedTuple):
    """What one step returns."""

    params: PyTree
    log_density: Float[Array, ""]
    acceptance: Float[Array, ""]
    """Acceptance probability of the proposal; 1 for an exact draw."""
    divergent: Bool[Array, ""]


def hamiltonian_step(
    posterior: Posterior,
    key: PRNGKeyArray,
    params: PyTree,
    controls: Controls,
    step_size: Float[Array, ""],
    num_steps: Int[Array, ""],
) -> Exploration:
    """One transition of Hamiltonian Monte Carlo.

    Log-density and gradient are evaluated afresh at `controls`, so that nothing stale survives a swap. `num_steps` is
    meant to be one random number for all chains and rungs, which keeps them in lockstep under `vmap`.
    """

    def density(position: PyTree) -> Array:
        return log_density(posterior, position, controls)

    dimension = sum(leaf.size for leaf in jax.tree.leaves(params))
    unit_metric = jnp.ones(dimension)
    state, info = _hmc(key, blackjax.hmc.init(params, density), density, step_size, unit_metric, num_steps)
    return Exploration(state.position, state.logdensity, info.acceptance_rate, info.is_divergent)


def prior_draw(posterior: Posterior, key: PRNGKeyArray, controls: Controls) -> Exploration:
    """An exact draw, for controls where the density is the prior itself (`controls.is_prior`)."""
    draw = posterior.sample_prior(key)
    return Exploration(draw, log_density(posterior, draw, controls), jnp.ones(()), jnp.zeros((), bool))
