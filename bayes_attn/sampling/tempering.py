"""Replica exchange: non-reversible even-odd swaps of indices between neighbouring rungs of a path.

References
----------
Syed, Bouchard-Cote, Deligiannidis, Doucet, "Non-reversible parallel tempering: a scalable highly parallel MCMC scheme",
J. R. Stat. Soc. B 84 (2022), doi:10.1111/rssb.12464.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_attn.posterior import Posterior
from bayes_attn.sampling.controls import Controls, log_density
from bayes_attn.sampling.explorers import hamiltonian_step, prior_draw


class Replicas(NamedTuple):
    """Independent replica-exchange chains; parameters stay with their replica, swaps move indices."""

    params: PyTree
    """Leaves have leading axes (chain, replica)."""
    replica_at: Int[Array, "chain rung"]
    """Which replica sits at each rung: a permutation per chain."""


class Scan(NamedTuple):
    """What one scan records, by rung and after the swap."""

    order_parameters: Any
    """The posterior's NamedTuple; leaves (chain, rung)."""
    log_density: Float[Array, "chain rung"]
    acceptance: Float[Array, "chain rung"]
    divergent: Bool[Array, "chain rung"]
    replica_at: Int[Array, "chain rung"]
    swap_acceptance: Float[Array, "chain pair"]
    """Acceptance probability of the swap of rungs (k, k+1); NaN where this scan's parity left the pair alone."""


def by_rung(replicas: Replicas) -> PyTree:
    """Parameters in rung order, leading axes (chain, rung)."""

    def gather(leaf: Array) -> Array:
        return jax.vmap(lambda chain, index: chain[index])(leaf, replicas.replica_at)

    return jax.tree.map(gather, replicas.params)


def swap(
    key: PRNGKeyArray,
    own: Float[Array, "chain rung"],
    crossed: Float[Array, "chain rung"],
    parity: Int[Array, ""],
) -> tuple[Int[Array, "chain rung"], Float[Array, "chain pair"]]:
    """One even-odd sweep of swaps.

    Parameters
    ----------
    own: log-density of the state at each rung under that rung's controls.
    crossed: the same state under its partner's controls (`partners`).
    parity: pairs (k, k+1) with k of this parity are tried.

    Returns
    -------
    source: for each rung, the rung whose state it receives; a permutation.
    probability: acceptance probability per pair, NaN for pairs not tried. A ratio that is not a number is rejected.
    """
    chains, rungs = own.shape
    tried = jnp.arange(rungs - 1) % 2 == parity
    gain = crossed - own
    log_ratio = gain[:, :-1] + gain[:, 1:]
    probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    accepted = tried & (jax.random.uniform(key, log_ratio.shape) < probability)
    nothing = jnp.zeros((chains, 1), dtype=bool)
    upwards, downwards = jnp.hstack([accepted, nothing]), jnp.hstack([nothing, accepted])
    source = jnp.arange(rungs) + upwards.astype(int) - downwards.astype(int)
    return source, jnp.where(tried, probability, jnp.nan)


def partners(rungs: int, parity: Int[Array, ""]) -> Int[Array, " rung"]:
    """The rung that each rung is paired with at this parity; itself at an unpaired end."""
    rung = jnp.arange(rungs)
    partner = jnp.where(rung % 2 == parity, rung + 1, rung - 1)
    return jnp.where((partner < 0) | (partner >= rungs), rung, partner)


def scan(
    posteriors: tuple[Posterior, int | None],
    path: Controls,
    key: PRNGKeyArray,
    number: Int[Array, ""],
    replicas: Replicas,
    step_sizes: Float[Array, " rung"],
    max_steps: int,
    exact: tuple[int, ...],
) -> tuple[Replicas, Scan]:
    """Explore every rung once (the rungs in `exact` by prior draws), then swap.

    `posteriors` are those of `controls.conditioned`.

    The randomness is a function of (key, scan number, chain, replica) alone, so chunking and resuming change nothing.
    Exploration is mapped over rungs outside and chains inside: what depends on the controls alone (the count tensor of
    a data set at this load) is then shared by the chains, and its contractions become matrix products.
    """
    chains, rungs = replicas.replica_at.shape
    scan_key = jax.random.fold_in(key, number)
    length_key, swap_key, explore_key = jax.random.split(scan_key, 3)
    num_steps = jax.random.randint(length_key, (), 1, max_steps + 1)
    streams = jnp.arange(chains)[:, None] * rungs + replicas.replica_at
    keys = jax.vmap(jax.vmap(lambda stream: jax.random.fold_in(explore_key, stream)))(streams)

    at_rung, axis = posteriors
    over_chains = jax.vmap(
        lambda posterior, k, params, controls, step: hamiltonian_step(posterior, k, params, controls, step, num_steps),
        in_axes=(None, 0, 0, None, None),
    )
    explored = jax.vmap(over_chains, in_axes=(axis, 1, 1, 0, 0), out_axes=1)(
        at_rung, keys, by_rung(replicas), path, step_sizes
    )

    def pick(tree: PyTree, rung: int | Array) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[rung], tree)

    def posterior_at(rung: int | Array) -> Posterior:
        return at_rung if axis is None else pick(at_rung, rung)

    for rung in exact:
        draw = jax.vmap(prior_draw, in_axes=(None, 0, None))
        draws = draw(posterior_at(rung), keys[:, rung], pick(path, rung))
        explored = jax.tree.map(lambda all_, drawn, rung=rung: all_.at[:, rung].set(drawn), explored, draws)

    parity = number % 2
    partner = partners(rungs, parity)
    over_chains = jax.vmap(log_density, in_axes=(None, 0, None))
    crossed = jax.vmap(over_chains, in_axes=(axis, 1, 0), out_axes=1)(
        posterior_at(partner), explored.params, pick(path, partner)
    )
    source, probability = swap(swap_key, explored.log_density, crossed, parity)

    def put_back(old: Array, new: Array) -> Array:
        return jax.vmap(lambda chain, index, values: chain.at[index].set(values))(old, replicas.replica_at, new)

    moved = Replicas(
        params=jax.tree.map(put_back, replicas.params, explored.params),
        replica_at=jnp.take_along_axis(replicas.replica_at, source, axis=1),
    )
    order = jax.vmap(jax.vmap(posterior_at(0).order_parameters))(explored.params)
    stayed = source == jnp.arange(rungs)
    record = Scan(
        order_parameters=jax.tree.map(lambda x: jnp.take_along_axis(x, source, axis=1), order),
        log_density=jnp.where(stayed, explored.log_density, jnp.take_along_axis(crossed, source, axis=1)),
        acceptance=explored.acceptance,
        divergent=explored.divergent,
        replica_at=moved.replica_at,
        swap_acceptance=probability,
    )
    return moved, record
