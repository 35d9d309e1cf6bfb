"""Local exploration at one rung: kernels of blackjax, each one function and one entry of the table `EXPLORERS`.

A kernel moves z = position / scale, flattened, with a unit metric: `scale` is the rung's within-phase metric.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
from blackjax.mcmc.ghmc import GHMCState
from blackjax.mcmc.hmc import HMCState
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_attn.posterior import Posterior
from bayes_attn.sampling.controls import Controls, log_density

_hmc = blackjax.hmc.build_kernel()
_nuts = blackjax.nuts.build_kernel()
_generalised_hmc = blackjax.ghmc.build_kernel()
MOST_DOUBLINGS = 8
"""Of a NUTS trajectory: at most 255 leapfrog steps."""
FRICTION = 1.0
"""Of Langevin dynamics in z: momentum is forgotten over one standard deviation or so."""

Density = Callable[[Float[Array, " dimension"]], Float[Array, ""]]


class Exploration(NamedTuple):
    """What one exploration returns."""

    params: PyTree
    log_density: Float[Array, ""]
    """At `params`; guarded, as the next."""
    start_log_density: Float[Array, ""]
    acceptance: Float[Array, ""]
    """Mean acceptance probability of the proposals; 1 for an exact draw."""
    divergent: Bool[Array, ""]
    """A proposal of finite log-density had an energy off by more than 1,000."""
    non_finite: Bool[Array, ""]
    """A proposal had the log-density NaN or +inf; it was rejected."""
    energy: Float[Array, ""]
    """As an `Outcome` has it, but +inf where the proposal had no log-density; NaN for an exact draw, which has no
    trajectory."""


class Outcome(NamedTuple):
    """What a kernel tells besides the state it reaches."""

    acceptance: Float[Array, ""]
    divergent: Bool[Array, ""]
    lowest: Float[Array, ""]
    """Lowest guarded log-density among the proposals."""
    energy: Float[Array, ""]
    """The Hamiltonian of the last proposal, accepted or not: -log_density + |momentum|^2 / 2. For NUTS, which rejects
    nothing, of the state it moves to."""


State = Any
"""An `HMCState` of blackjax, whose position is a vector here."""
Kernel = Callable[[PRNGKeyArray, State, Density, Array, Array], tuple[State, Outcome]]


class Explorer(NamedTuple):
    """A kernel and the acceptance its step size is tuned to."""

    kernel: Kernel
    """(key, state, density, step size, steps) -> (state, outcome)."""
    target_acceptance: float


def guarded(value: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """A log-density with NaN and +inf replaced by the lowest finite number, which every kernel and swap rejects.

    Left alone, blackjax's NUTS accepts +inf, and so would a swap. -inf stays: it is an edge of the support.
    """
    return jnp.where(jnp.isnan(value) | jnp.isposinf(value), jnp.finfo(value.dtype).min, value)


def is_guard(value: Float[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Whether `guarded` put it there."""
    return value == jnp.finfo(value.dtype).min


def hamiltonian(
    key: PRNGKeyArray, state: State, density: Density, step_size: Array, steps: Array
) -> tuple[State, Outcome]:
    """Hamiltonian Monte Carlo: one trajectory of `steps` leapfrog steps."""
    state, info = _hmc(key, state, density, step_size, jnp.ones_like(state.position), steps)
    return state, Outcome(info.acceptance_rate, info.is_divergent, info.proposal.logdensity, info.energy)


def no_u_turn(
    key: PRNGKeyArray, state: State, density: Density, step_size: Array, steps: Array
) -> tuple[State, Outcome]:
    """The no-U-turn sampler: one trajectory, which chooses its own number of steps."""
    del steps
    state, info = _nuts(key, state, density, step_size, jnp.ones_like(state.position), MOST_DOUBLINGS)
    ends = (info.trajectory_leftmost_state.logdensity, info.trajectory_rightmost_state.logdensity)
    return state, Outcome(info.acceptance_rate, info.is_divergent, jnp.minimum(*ends), info.energy)


def metropolis_langevin(
    key: PRNGKeyArray, state: State, density: Density, step_size: Array, steps: Array
) -> tuple[State, Outcome]:
    """MALA, `steps` times: each is Hamiltonian Monte Carlo with a single leapfrog step."""

    def step(key: PRNGKeyArray, state: State) -> tuple[State, Outcome]:
        return hamiltonian(key, state, density, step_size, jnp.asarray(1))

    return _repeated(step, key, state, steps)


def underdamped_langevin(
    key: PRNGKeyArray, state: State, density: Density, step_size: Array, steps: Array
) -> tuple[State, Outcome]:
    """Underdamped Langevin dynamics, `steps` steps with a persistent momentum, each accepted or its momentum reversed.

    Momentum starts afresh at every scan, so that nothing but the position is carried through swaps (Horowitz's
    generalised Hamiltonian Monte Carlo, with Neal's slice variable).
    """
    fresh, key = jax.random.split(key)
    momentum_key, slice_key = jax.random.split(fresh)
    dtype = state.position.dtype
    momentum = jax.random.normal(momentum_key, state.position.shape, dtype)
    slice_: Any = jax.random.uniform(slice_key, (), dtype, -1.0, 1.0)
    start = GHMCState(state.position, momentum, state.logdensity, state.logdensity_grad, slice_)
    renewal = -jnp.expm1(-2 * FRICTION * step_size)

    def step(key: PRNGKeyArray, state: State) -> tuple[State, Outcome]:
        metric = jnp.ones_like(state.position)
        moved, info = _generalised_hmc(key, state, density, step_size, metric, renewal, jnp.zeros((), dtype))
        # An infinite energy turns blackjax's slice variable into 0 * inf; a rejection must leave it as it was.
        moved = moved._replace(slice=jnp.where(jnp.isnan(moved.slice), state.slice, moved.slice))
        return moved, Outcome(info.acceptance_rate, info.is_divergent, info.proposal.logdensity, info.energy)

    end, outcome = _repeated(step, key, start, steps)
    return HMCState(end.position, end.logdensity, end.logdensity_grad), outcome


def _repeated(
    step: Callable[[PRNGKeyArray, PyTree], tuple[PyTree, Outcome]], key: PRNGKeyArray, state: PyTree, steps: Array
) -> tuple[PyTree, Outcome]:
    """`steps` steps one after the other: mean acceptance, any divergence, lowest proposal, last energy."""

    def body(number: Array, carried: tuple[PyTree, Outcome]) -> tuple[PyTree, Outcome]:
        state, so_far = carried
        state, outcome = step(jax.random.fold_in(key, number), state)
        return state, Outcome(
            so_far.acceptance + outcome.acceptance / steps.astype(outcome.acceptance.dtype),
            so_far.divergent | outcome.divergent,
            jnp.minimum(so_far.lowest, outcome.lowest),
            outcome.energy,
        )

    zero = jnp.zeros_like(state.logdensity)
    return jax.lax.fori_loop(0, steps, body, (state, Outcome(zero, jnp.zeros((), bool), zero + jnp.inf, zero)))


EXPLORERS: dict[str, Explorer] = {
    "hmc": Explorer(hamiltonian, 0.8),
    "nuts": Explorer(no_u_turn, 0.8),
    "mala": Explorer(metropolis_langevin, 0.57),
    "langevin": Explorer(underdamped_langevin, 0.95),
}


def explore(
    kernel: Kernel,
    posterior: Posterior,
    key: PRNGKeyArray,
    params: PyTree,
    controls: Controls,
    step_size: Float[Array, ""],
    scale: Float[Array, " dimension"],
    steps: Int[Array, ""],
) -> Exploration:
    """One exploration with `kernel` at `controls`.

    Log-density and gradient are evaluated afresh, so that nothing stale survives a swap. `steps` is meant to be one
    random number for all chains and rungs, which keeps them in lockstep under `vmap`.
    """
    position, unravel = ravel_pytree(params)
    scale = scale.astype(position.dtype)

    def density(z: Float[Array, " dimension"]) -> Float[Array, ""]:
        return guarded(log_density(posterior, unravel(scale * z), controls).astype(position.dtype))

    start: State = blackjax.hmc.init(position / scale, density)
    state, outcome = kernel(key, start, density, step_size.astype(position.dtype), steps)
    non_finite = is_guard(outcome.lowest)
    divergent = outcome.divergent & jnp.isfinite(outcome.lowest) & ~non_finite
    # A move that was rejected returns the very numbers it began with, not scale * (position / scale).
    moved = jnp.where(state.position == start.position, position, scale * state.position)
    acceptance = jnp.nan_to_num(outcome.acceptance)
    # The guard's size depends on the precision, and blackjax calls a NaN an infinite energy too.
    without = jnp.isnan(outcome.energy) | is_guard(-outcome.energy)
    energy = jnp.where(without, jnp.inf, outcome.energy)
    return Exploration(unravel(moved), state.logdensity, start.logdensity, acceptance, divergent, non_finite, energy)


def prior_draw(posterior: Posterior, key: PRNGKeyArray, controls: Controls, rounded: bool = False) -> Exploration:
    """An exact draw, for controls where the density is the prior itself (`controls.is_prior`).

    `rounded`: to single precision, for explorers that can represent nothing finer.
    """
    draw = posterior.sample_prior(key)
    if rounded:
        draw = jax.tree.map(lambda leaf: leaf.astype(jnp.float32).astype(leaf.dtype), draw)
    density = guarded(log_density(posterior, draw, controls))
    no = jnp.zeros((), bool)
    return Exploration(draw, density, density, jnp.ones_like(density), no, no, jnp.full_like(density, jnp.nan))
