"""Running replica exchange: chunks compiled once, progress per chunk, results as numpy arrays."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import DualAveragingAdaptationState
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_attn.errors import InvalidInput, require, require_integer
from bayes_attn.posterior import Posterior
from bayes_attn.sampling import adaptation, tempering
from bayes_attn.sampling.controls import Controls, conditioned, is_prior, log_density
from bayes_attn.sampling.tempering import Replicas, Scan

INITIAL_STEP_SIZE = 0.05
"""Before adaptation, small enough for any start."""
LARGEST_CHUNK = 50
"""Draws between two reports of progress, at most."""


@dataclass(frozen=True)
class Schedule:
    """How long a run is.

    Parameters
    ----------
    warmup: scans with adaptation, thrown away; a multiple of `thin`.
    draws: recorded draws of the parameters per chain.
    thin: scans per recorded draw (order parameters are recorded at every scan).
    max_steps: leapfrog steps per scan are uniform on 1 ... max_steps.
    """

    warmup: int = 1_000
    draws: int = 200
    thin: int = 20
    max_steps: int = 8

    def __post_init__(self) -> None:
        require_integer("Schedule", "thin", self.thin, least=1)
        require_integer("Schedule", "draws", self.draws, least=1)
        require_integer("Schedule", "max_steps", self.max_steps, least=1)
        require_integer("Schedule", "warmup", self.warmup, least=self.thin)
        require(
            self.warmup % self.thin == 0,
            "Schedule",
            "warmup",
            f"must be a multiple of `thin` = {self.thin}",
            self.warmup,
        )

    @property
    def scans(self) -> int:
        """Recorded scans per chain."""
        return self.draws * self.thin

    @property
    def chunk(self) -> int:
        """Draws per compiled chunk: divides both the warm-up and the draws."""
        common = math.gcd(self.draws, self.warmup // self.thin)
        return max(d for d in range(1, min(common, LARGEST_CHUNK) + 1) if common % d == 0)


@dataclass(frozen=True)
class Samples:
    """A run's result; numpy arrays, rungs in path order."""

    path: Controls
    order_parameters: Any
    """The posterior's NamedTuple; leaves (chain, scan, rung)."""
    log_density: Float[np.ndarray, "chain scan rung"]
    acceptance: Float[np.ndarray, "chain scan rung"]
    divergent: Bool[np.ndarray, "chain scan rung"]
    replica_at: Int[np.ndarray, "chain scan rung"]
    swap_acceptance: Float[np.ndarray, "chain scan pair"]
    """NaN where a pair was not tried."""
    params: PyTree
    """Leaves (chain, draw, rung, ...), single precision, after every `thin` scans."""
    step_size: Float[np.ndarray, " rung"]
    schedule: Schedule

    @property
    def swap_rate(self) -> Float[np.ndarray, " pair"]:
        """Mean acceptance probability of the swaps of rungs (k, k+1)."""
        return np.nanmean(self.swap_acceptance, axis=(0, 1))

    def replica_of(self) -> Int[np.ndarray, "chain scan replica"]:
        """The rung at which each replica sits: the index process."""
        return np.argsort(self.replica_at, axis=-1)

    def round_trips(self) -> int:
        """Journeys of a replica from the first rung to the last and back, over all chains."""
        rung = self.replica_of()
        last = rung.shape[-1] - 1
        return _count_returns(rung == 0, rung == last)

    def phase_round_trips(self, low: float, high: float) -> int:
        """Journeys of a replica from |copy mass| below `low` to above `high` and back, over all chains.

        The magnitude, because for linear attention m and -m are one phase.
        """
        copy_mass = np.abs(np.asarray(self.order_parameters[0]))
        replica_mass = np.take_along_axis(copy_mass, self.replica_of(), axis=-1)
        return _count_returns(replica_mass < low, replica_mass > high)


def _count_returns(here: Bool[np.ndarray, "chain scan replica"], there: Bool[np.ndarray, "chain scan replica"]) -> int:
    """How often a replica that was `here` has been `there` and come back, summed over replicas and chains."""
    trips = 0
    for marks in np.moveaxis(here.astype(int) - there.astype(int), 1, -1).reshape(-1, here.shape[1]):
        visits = marks[marks != 0]
        visits = visits[np.argmax(visits == 1) :] if np.any(visits == 1) else visits[:0]
        trips += int(np.count_nonzero(np.diff(visits))) // 2
    return trips


class _State(NamedTuple):
    replicas: Replicas
    adaptation: DualAveragingAdaptationState


@eqx.filter_jit
def _chunk(
    posterior: Posterior,
    path: Controls,
    key: PRNGKeyArray,
    state: _State,
    first: Int[Array, ""],
    warming: Bool[Array, ""],
    draws: int,
    thin: int,
    max_steps: int,
    exact: tuple[int, ...],
) -> tuple[_State, tuple[Scan, PyTree]]:
    """`draws` times `thin` scans, starting at scan number `first`."""
    posteriors = conditioned(posterior, path)

    def one_scan(state: _State, number: Array) -> tuple[_State, Scan]:
        step_sizes = adaptation.step_sizes(state.adaptation, warming)
        replicas, record = tempering.scan(posteriors, path, key, number, state.replicas, step_sizes, max_steps, exact)
        adapted = adaptation.update(state.adaptation, record.acceptance.mean(0), warming & ~is_prior(path))
        return _State(replicas, adapted), record

    def one_draw(state: _State, start: Array) -> tuple[_State, tuple[Scan, PyTree]]:
        state, records = jax.lax.scan(one_scan, state, start + jnp.arange(thin))
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tempering.by_rung(state.replicas))
        return state, (records, params)

    state, (records, params) = jax.lax.scan(one_draw, state, first + thin * jnp.arange(draws))
    return state, (jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), records), params)


def sample(
    posterior: Posterior,
    path: Controls,
    initial: PyTree,
    schedule: Schedule,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Samples:
    """Sample a posterior at every rung of a path with replica exchange.

    Parameters
    ----------
    posterior: anything that meets the `Posterior` contract.
    path: controls, arrays of shape (rung,).
    initial: start of every replica, leaves with leading axes (chain, rung).
    schedule: lengths.
    seed: fixes every random number; the result does not depend on chunking.
    progress: called with (scans done, scans in all) after every chunk.

    Raises
    ------
    InvalidInput: `initial` does not match the path, a start has a density that is not finite, or the path asks for
        more data than the posterior has (its `check_load`, where there is one, says so).
    """
    require_integer("sample", "seed", seed, least=0)
    rungs = len(np.asarray(path.load))
    shapes = [jnp.shape(leaf)[:2] for leaf in jax.tree.leaves(initial)]
    if not shapes or any(len(s) < 2 or s[1] != rungs or s != shapes[0] for s in shapes):
        raise InvalidInput(f"sample: `initial` must have leading axes (chain, rung) with {rungs} rungs, got {shapes}.")
    chains = shapes[0][0]
    initial = jax.tree.map(jnp.asarray, initial)
    if (check_load := getattr(posterior, "check_load", None)) is not None:
        for load in np.asarray(path.load):
            check_load(float(load))
    _refuse_bad_starts(posterior, path, initial)

    # One stream for a run; its own fold keeps it apart from the streams that made data and starts from this seed.
    key = jax.random.fold_in(jax.random.key(seed), 0x5CA9)
    replica_at = jnp.broadcast_to(jnp.arange(rungs), (chains, rungs))
    state = _State(Replicas(initial, replica_at), adaptation.start(jnp.full(rungs, INITIAL_STEP_SIZE)))
    # Through numpy, which drops weak types: the state then has one signature and the chunk compiles once.
    state = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), state)
    exact = tuple(int(rung) for rung in np.flatnonzero(is_prior(path)))
    per_chunk = schedule.chunk * schedule.thin
    total = schedule.warmup + schedule.scans
    records: list[tuple[Scan, PyTree]] = []
    for first in range(0, total, per_chunk):
        warming = first < schedule.warmup
        state, record = _chunk(
            posterior, path, key, state, jnp.asarray(first), jnp.asarray(warming),
            schedule.chunk, schedule.thin, schedule.max_steps, exact,
        )  # fmt: skip
        if not warming:
            records.append(jax.tree.map(np.asarray, record))
        else:
            jax.block_until_ready(state)
        if progress is not None:
            progress(first + per_chunk, total)
    scans, params = jax.tree.map(lambda *parts: np.moveaxis(np.concatenate(parts), 0, 1), *records)
    return Samples(
        path=jax.tree.map(np.asarray, path),
        order_parameters=scans.order_parameters,
        log_density=scans.log_density,
        acceptance=scans.acceptance,
        divergent=scans.divergent,
        replica_at=scans.replica_at,
        swap_acceptance=scans.swap_acceptance,
        params=params,
        step_size=np.asarray(adaptation.step_sizes(state.adaptation, jnp.asarray(False))),
        schedule=schedule,
    )


def _refuse_bad_starts(posterior: Posterior, path: Controls, initial: PyTree) -> None:
    at_rung = jax.vmap(partial(log_density, posterior))
    density = np.asarray(jax.jit(jax.vmap(at_rung, in_axes=(0, None)))(initial, path))
    if not np.all(np.isfinite(density)):
        chain, rung = (int(i) for i in np.argwhere(~np.isfinite(density))[0])
        where = f"{density[chain, rung]} at chain {chain}, rung {rung}"
        raise InvalidInput(f"sample: `initial` must have a finite log-density at every rung, got {where}.")
