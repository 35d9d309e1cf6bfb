"""Warm-up: one step size per rung, by dual averaging of the acceptance pooled over chains."""

import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import DualAveragingAdaptationState, dual_averaging_adaptation
from jaxtyping import Array, Bool, Float

TARGET_ACCEPTANCE = 0.8

_init, _update, _ = dual_averaging_adaptation(TARGET_ACCEPTANCE)


def start(step_size: Float[Array, " rung"]) -> DualAveragingAdaptationState:
    """The state of dual averaging, every leaf with a leading axis over rungs."""
    return jax.vmap(_init)(step_size)


def update(
    state: DualAveragingAdaptationState, acceptance: Float[Array, " rung"], active: Bool[Array, " rung"]
) -> DualAveragingAdaptationState:
    """One update with the mean acceptance of each rung that is `active`: warming up, and not drawn exactly."""
    updated = jax.vmap(_update)(state, jnp.nan_to_num(acceptance))
    return jax.tree.map(lambda new, old: jnp.where(active, new, old), updated, state)


def step_sizes(state: DualAveragingAdaptationState, warming: Bool[Array, ""]) -> Float[Array, " rung"]:
    """The step sizes to use: the current ones while warming, their average, frozen, afterwards."""
    return jnp.exp(jnp.where(warming, state.log_step_size, state.log_step_size_avg))
