"""Replica exchange: non-reversible even-odd swaps of indices between neighbouring rungs.

References
----------
Syed, Bouchard-Cote, Deligiannidis, Doucet, "Non-reversible parallel tempering: a scalable highly parallel MCMC scheme",
J. R. Stat. Soc. B 84 (2022), doi:10.1111/rssb.12464.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_attn.posterior import Posterior
from bayes_attn.sampling.controls import Controls, log_density
from bayes_attn.sampling.explorers import Exploration, Kernel, explore, guarded, is_guard, prior_draw


class Replicas(NamedTuple):
    """Independent replica-exchange chains; parameters stay with their replica, swaps move indices."""

    params: PyTree
    """Leaves have leading axes (chain, replica)."""
    replica_at: Int[Array | np.ndarray, "chain rung"]
    """Which replica sits at each rung: a permutation per chain."""
    chain: Int[Array | np.ndarray, " chain"]
    """The chains' numbers: on several devices each holds some of them."""


class Scan(NamedTuple):
    """What one scan records, by rung and after the swap unless said otherwise."""

    order_parameters: Any
    """The posterior's NamedTuple; leaves (chain, rung)."""
    log_density: Float[Array, "chain rung"]
    acceptance: Float[Array, "chain rung"]
    """Of the exploration, before the swap; likewise the next three."""
    divergent: Bool[Array, "chain rung"]
    non_finite: Bool[Array, "chain rung"]
    """A proposal, or the state at its partner's controls, had a log-density of NaN or +inf."""
    energy: Float[Array, "chain rung"]
    """Of the proposal (`explorers.Outcome`); NaN where an exact draw replaced the exploration."""
    replica_at: Int[Array | np.ndarray, "chain rung"]
    gain: Float[Array, "chain rung"]
    """Log-density of the state before the swap at its partner's controls less that at its own; 0 at an unpaired end."""


class Rungs(NamedTuple):
    """All that exploration and swaps need to know of the ladder."""

    controls: Controls
    scale: Float[Array | np.ndarray, "rung dimension"]
    exact: Int[Array | np.ndarray, " exact"]
    """Rungs whose density is the prior itself: refreshed by exact draws."""


class Method(NamedTuple):
    """How to explore; static under jit."""

    kernel: Kernel
    max_steps: int
    single_precision: bool
    """Explore in single precision; the outcome is accepted once more with the ratio in double precision."""


def by_rung(replicas: Replicas) -> PyTree:
    """Parameters in rung order, leading axes (chain, rung)."""

    def gather(leaf: Array) -> Array:
        return jax.vmap(lambda chain, index: chain[index])(leaf, replicas.replica_at)

    return jax.tree.map(gather, replicas.params)


def partners(rungs: int, parity: Int[Array, ""]) -> Int[Array, " rung"]:
    """The rung that each rung is paired with at this parity; itself at an unpaired end."""
    rung = jnp.arange(rungs)
    partner = jnp.where(rung % 2 == parity, rung + 1, rung - 1)
    return jnp.where((partner < 0) | (partner >= rungs), rung, partner)


def swap(
    uniform: Float[Array, "chain pair"], gain: Float[Array, "chain rung"], parity: Int[Array, ""]
) -> Int[Array, "chain rung"]:
    """One even-odd sweep of swaps.

    Parameters
    ----------
    uniform: random numbers from 0 to 1 that decide.
    gain: log-density of the state at each rung under its partner's controls (`partners`), less that under its own.
    parity: pairs (k, k+1) with k of this parity are tried.

    Returns
    -------
    For each rung, the rung whose state it receives: a permutation. A ratio that is not a number is rejected.
    """
    chains, rungs = gain.shape
    tried = jnp.arange(rungs - 1) % 2 == parity
    accepted = tried & (jnp.log(uniform) < gain[:, :-1] + gain[:, 1:])
    nothing = jnp.zeros((chains, 1), dtype=bool)
    upwards, downwards = jnp.hstack([accepted, nothing]), jnp.hstack([nothing, accepted])
    return jnp.arange(rungs) + upwards.astype(int) - downwards.astype(int)


def scan(
    posteriors: tuple[Posterior, int | None],
    rungs: Rungs,
    method: Method,
    key: PRNGKeyArray,
    number: Int[Array, ""],
    replicas: Replicas,
    step_sizes: Float[Array, "chain rung"],
) -> tuple[Replicas, Scan]:
    """Explore every rung once, then swap.

    `posteriors` are those of `controls.conditioned`.

    The randomness is a function of (key, scan number, chain, replica) alone, so that chunks, devices and resuming
    change nothing. Exploration is mapped over rungs outside and chains inside: what depends on the controls alone (the
    count tensor of a data set at this load) is then shared by the chains, and its contractions become matrix products.
    """
    at_rung, axis = posteriors
    count = replicas.replica_at.shape[1]
    length_key, chain_key = jax.random.split(jax.random.fold_in(key, number))
    steps = jax.random.randint(length_key, (), 1, method.max_steps + 1)
    chain_keys = jax.vmap(lambda chain: jax.random.fold_in(chain_key, chain))(replicas.chain)
    explore_keys = jax.vmap(
        lambda key, replica_at: jax.vmap(lambda replica: jax.random.fold_in(key, replica))(replica_at)
    )(chain_keys, replicas.replica_at)
    # Replica numbers are taken; the swaps' stream is the next.
    uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, count), (count - 1,)))(chain_keys)

    def over_rungs(function: Callable[..., Any], posterior: PyTree, *trees: PyTree) -> Any:
        """`function` per rung, on the posterior there and trees whose leaves have the axes (rung, chain, ...)."""
        return jax.vmap(function, in_axes=(axis, *(0 for _ in trees)))(posterior, *trees)

    def swapped_axes(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tree)

    def pick(tree: PyTree, rung: Array | np.ndarray) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[rung], tree)

    def posterior_at(rung: Array | np.ndarray) -> PyTree:
        return at_rung if axis is None else pick(at_rung, rung)

    def densities(posterior: PyTree, params: PyTree, controls: Controls) -> Float[Array, "rung chain"]:
        def one_rung(posterior: Posterior, params: PyTree, controls: Controls) -> Array:
            return jax.vmap(lambda params: guarded(log_density(posterior, params, controls)))(params)

        return over_rungs(one_rung, posterior, params, controls)

    def one_rung(
        posterior: Posterior, keys: Array, params: PyTree, step_sizes: Array, controls: Controls, scale: Array
    ) -> Exploration:
        def one_chain(key: Array, params: PyTree, step_size: Array) -> Exploration:
            if not method.single_precision:
                return explore(method.kernel, posterior, key, params, controls, step_size, scale, steps)
            return _explore_in_single_precision(method, posterior, key, params, controls, step_size, scale, steps)

        return jax.vmap(one_chain)(keys, params, step_sizes)

    keys, before = swapped_axes(explore_keys), swapped_axes(by_rung(replicas))
    explored = over_rungs(one_rung, at_rung, keys, before, step_sizes.T, rungs.controls, rungs.scale)
    if len(rungs.exact):

        def draw(posterior: Posterior, keys: Array, controls: Controls) -> Exploration:
            return jax.vmap(lambda key: prior_draw(posterior, key, controls, method.single_precision))(keys)

        drawn = over_rungs(draw, posterior_at(rungs.exact), keys[rungs.exact], pick(rungs.controls, rungs.exact))
        explored = jax.tree.map(lambda all_, some: all_.at[rungs.exact].set(some), explored, drawn)

    parity = number % 2
    partner = partners(count, parity)
    crossed = densities(posterior_at(partner), explored.params, pick(rungs.controls, partner))
    gain = jnp.where((partner == jnp.arange(count))[:, None], 0.0, crossed - explored.log_density)
    # From here on by chain; `order` belongs to the states before the swap.
    order = jax.vmap(jax.vmap(posterior_at(jnp.zeros((), int)).order_parameters))(explored.params)
    explored, order, crossed, gain = swapped_axes((explored, order, crossed, gain))
    source = swap(uniform, gain, parity)

    def put_back(old: Array, new: Array) -> Array:
        return jax.vmap(lambda chain, index, values: chain.at[index].set(values))(old, replicas.replica_at, new)

    moved = replicas._replace(
        params=jax.tree.map(put_back, replicas.params, explored.params),
        replica_at=jnp.take_along_axis(replicas.replica_at, source, axis=1),
    )
    stayed = source == jnp.arange(count)
    record = Scan(
        order_parameters=jax.tree.map(lambda x: jnp.take_along_axis(x, source, axis=1), order),
        log_density=jnp.where(stayed, explored.log_density, jnp.take_along_axis(crossed, source, axis=1)),
        acceptance=explored.acceptance,
        divergent=explored.divergent,
        non_finite=explored.non_finite | is_guard(crossed),
        energy=explored.energy,
        replica_at=moved.replica_at,
        gain=gain,
    )
    return moved, record


def _explore_in_single_precision(
    method: Method,
    posterior: Posterior,
    key: PRNGKeyArray,
    params: PyTree,
    controls: Controls,
    step_size: Array,
    scale: Array,
    steps: Array,
) -> Exploration:
    """Explore with densities and gradients in single precision, and accept the outcome with the double-precision ratio.

    The kernels are reversible with respect to the density they see, so that accepting with

        min(1, p(x') / p(x) * p32(x) / p32(x'))

    makes the result exact for p itself (Liu, "Monte Carlo strategies in scientific computing", 2001, section 9.4.3).
    """
    single, double = _cast(posterior, jnp.float32), params
    kernel_key, accept_key = jax.random.split(key)
    rounded = _cast(controls, jnp.float32)
    out = explore(method.kernel, single, kernel_key, _cast(double, jnp.float32), rounded, step_size, scale, steps)
    proposed = _cast(out.params, jnp.float64)
    here = guarded(log_density(posterior, double, controls))
    there = guarded(log_density(posterior, proposed, controls))
    correction = (there - here) - (out.log_density.astype(float) - out.start_log_density.astype(float))
    accept = jnp.log(jax.random.uniform(accept_key)) < correction
    return Exploration(
        params=jax.tree.map(lambda new, old: jnp.where(accept, new, old), proposed, double),
        log_density=jnp.where(accept, there, here),
        start_log_density=here,
        acceptance=out.acceptance.astype(float) * jnp.exp(jnp.minimum(jnp.nan_to_num(correction), 0.0)),
        divergent=out.divergent,
        non_finite=out.non_finite | is_guard(there),
        energy=out.energy.astype(float),
    )


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    def cast(leaf: Any) -> Any:
        is_float = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if is_float else leaf

    return jax.tree.map(cast, tree)
