"""What a run of replica exchange returns, and what its swaps say about it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Integer, PyTree

from bayes_attn.errors import require, require_integer
from bayes_attn.sampling.controls import Controls

LEAST_SWAP_RATE = 0.25
LEAST_RATE_RATIO = 0.2
LEAST_TRIPS_DUE = 3.0
"""Predicted round trips per replica, from which on their absence says something."""


class Advice(Enum):
    """What a run says about its own quality, and what to do next."""

    MORE_RUNGS = (
        "swaps between some neighbours are accepted less than once in four tries: add rungs (rungs='auto' does)"
    )
    NO_ROUND_TRIP = "no replica went from the first rung to the last and back: run longer, or add rungs"
    SLOW_EXPLORATION = (
        "round trips come at less than a fifth of the rate that the swaps allow: the explorer does not change what the "
        "swaps depend on; take more steps per scan, or a path that crosses no first-order transition"
    )
    DIVERGENCES = (
        "some trajectories diverged: the target has regions that the step size does not resolve; warm up longer"
    )
    NON_FINITE = "some proposals had a log-density of NaN or +inf and were rejected: check the density there"


@dataclass(frozen=True)
class Schedule:
    """How long a run is.

    Parameters
    ----------
    warmup: scans with adaptation, thrown away; in rounds, each twice as long as the one before. Rounded up to whole
        strides (the largest divisor of `thin` up to 10).
    draws: recorded draws of the parameters per chain.
    thin: scans per recorded draw (order parameters are recorded at every scan).
    max_steps: the explorer's steps per scan are uniform on 1 ... max_steps, one number for all chains and rungs.
    """

    warmup: int = 1_000
    draws: int = 200
    thin: int = 20
    max_steps: int = 8

    def __post_init__(self) -> None:
        for name, least in (("warmup", 1), ("draws", 1), ("thin", 1), ("max_steps", 1)):
            require_integer("Schedule", name, getattr(self, name), least=least)

    @property
    def scans(self) -> int:
        """Recorded scans per chain."""
        return self.draws * self.thin

    @property
    def total(self) -> int:
        """Scans per chain, warm-up included."""
        return self.warmup + self.scans


class Round(NamedTuple):
    """One round of the warm-up."""

    scans: int
    rungs: int
    communication_barrier: float
    least_swap_rate: float


@dataclass(frozen=True)
class Samples:
    """A run's result; numpy arrays (files mapped into memory where the run has a folder), rungs in path order."""

    path: Controls
    """The ladder: where the rungs are."""
    position: Float[np.ndarray, " rung"]
    """Of each rung on its `Path`: legs' ends are whole numbers. Without a `Path`, the rung's number."""
    order_parameters: Any
    """The posterior's NamedTuple; leaves (chain, scan, rung)."""
    log_density: Float[np.ndarray, "chain scan rung"]
    acceptance: Float[np.ndarray, "chain scan rung"]
    divergent: Bool[np.ndarray, "chain scan rung"]
    non_finite: Bool[np.ndarray, "chain scan rung"]
    """A log-density of NaN or +inf was met and rejected, by the explorer or by a swap."""
    energy: Float[np.ndarray, "chain scan rung"]
    """Before the swap: the Hamiltonian of the exploration's last proposal, -log_density + |momentum|^2 / 2, in nats.
    That is of the end of the trajectory, accepted or not; with NUTS, of the state moved to. +inf: a proposal without a
    log-density; NaN: no trajectory (an exact draw of the prior, tempered SMC). In single precision with
    `precision="mixed"`."""
    replica_at: Integer[np.ndarray, "chain scan rung"]
    gain: Float[np.ndarray, "chain scan rung"]
    """Before the swap: the state's log-density under its partner's controls, less that under its own, in nats; partners
    are the rungs whose swap is tried (`swaps_tried`), and an unpaired end has 0."""
    params: PyTree
    """Leaves (chain, draw, rung, ...), single precision, after every `thin` scans."""
    step_size: Float[np.ndarray, " rung"]
    scale: Float[np.ndarray, "rung dimension"]
    """The metric: within-phase standard deviation of every coordinate; unit: the step size's."""
    rounds: tuple[Round, ...]
    schedule: Schedule
    sampler: str
    log_evidence: Float[np.ndarray, "chain rung"] | None = None
    """Of a sampler that estimates it by itself (tempered SMC): log of the integral of prior times the rest, in nats."""
    posteriors: int = 1
    """How many were sampled side by side: each has as many chains, those of the first come first (`of`)."""

    @property
    def rungs(self) -> int:
        return len(self.position)

    @property
    def swap_acceptance(self) -> Float[np.ndarray, "chain scan pair"]:
        """Acceptance probability of the swap of rungs (k, k + 1); NaN where it was not tried."""
        return np.where(self._tried(), swap_probability(self.gain), np.nan)

    def _tried(self) -> Bool[np.ndarray, "1 scan pair"]:
        tried = swaps_tried(self.rungs - 1, self.schedule.warmup + np.arange(self.gain.shape[1]))
        return (tried & (self.sampler not in INDEPENDENT))[None]

    @property
    def swap_rate(self) -> Float[np.ndarray, " pair"]:
        """Mean acceptance probability of each swap over its tries; NaN where rungs were sampled independently."""
        tried = self._tried()
        tries = np.maximum(tried.sum(axis=(0, 1)) * len(self.gain), 1)
        accepted = np.nansum(self.swap_acceptance, axis=(0, 1)) / tries
        return np.where(tried.any(axis=(0, 1)), accepted, np.nan)

    @property
    def communication_barrier(self) -> float:
        """Lambda: sum of the rejection probabilities of neighbouring rungs (Syed et al. 2022)."""
        return float(np.sum(1 - self.swap_rate))

    @property
    def local_barrier(self) -> Float[np.ndarray, " pair"]:
        """The communication barrier per unit of position, between neighbouring rungs."""
        return (1 - self.swap_rate) / np.diff(self.position)

    @property
    def predicted_round_trip_rate(self) -> float:
        """Round trips per scan and chain, non-reversible, if exploration made every scan's states anew."""
        rejection = 1 - self.swap_rate
        with np.errstate(divide="ignore"):
            return float(1 / (2 + 2 * np.sum(rejection / (1 - rejection))))

    @property
    def round_trip_rate(self) -> float:
        """Round trips seen per scan and chain."""
        return self.round_trips() / self.replica_at.shape[0] / self.replica_at.shape[1]

    @property
    def round_trip_rate_ratio(self) -> float:
        """Seen over predicted; 1 if exploration is perfect. NaN where nothing is predicted."""
        predicted = self.predicted_round_trip_rate
        return self.round_trip_rate / predicted if predicted > 0 else float("nan")

    def replica_of(self) -> Int[np.ndarray, "chain scan replica"]:
        """The rung at which each replica sits: the index process."""
        return np.argsort(self.replica_at, axis=-1)

    def round_trips(self) -> int:
        """Journeys of a replica from the first rung to the last and back, over all chains."""
        rung = self.replica_of()
        last = rung.shape[-1] - 1
        return 0 if last == 0 else _count_returns(rung == 0, rung == last)

    def phase_round_trips(self, low: float, high: float, rungs: Sequence[int] | None = None) -> int:
        """Journeys of a replica from |first order parameter| below `low` to above `high` and back, over all chains.

        The magnitude, because for linear attention m and -m are one phase. With `rungs`, only what a replica is while
        it sits there counts: at the rungs of the target, that is, and not on the way where there are no phases.
        """
        copy_mass, rung = np.abs(np.asarray(self.order_parameters[0])), self.replica_of()
        replica_mass = np.take_along_axis(copy_mass, rung, axis=-1)
        counted = np.ones(self.rungs, dtype=bool) if rungs is None else np.isin(np.arange(self.rungs), rungs)
        return _count_returns((replica_mass < low) & counted[rung], (replica_mass > high) & counted[rung])

    def advice(self) -> tuple[Advice, ...]:
        """What the run says about itself; nothing if all is well."""
        found = []
        if self.rungs > 1 and self.sampler not in INDEPENDENT:
            trips = self.round_trips()
            # Only then was each replica's first trip due.
            long_enough = self.replica_at.shape[1] * self.predicted_round_trip_rate > LEAST_TRIPS_DUE * self.rungs
            if np.min(self.swap_rate) < LEAST_SWAP_RATE:
                found.append(Advice.MORE_RUNGS)
            if trips == 0:
                found.append(Advice.NO_ROUND_TRIP)
            elif long_enough and self.round_trip_rate_ratio < LEAST_RATE_RATIO:
                found.append(Advice.SLOW_EXPLORATION)
        if np.any(self.divergent):
            found.append(Advice.DIVERGENCES)
        if np.any(self.non_finite):
            found.append(Advice.NON_FINITE)
        return tuple(found)

    def of(self, number: int) -> "Samples":
        """The part of one of the posteriors, numbered from 0 as they were given to `sample`.

        Ladder, metric and step sizes, with the rounds that found them, stay those that all of them shared. What is
        computed from the samples as a whole (swaps, round trips, free energies) belongs to this posterior alone.

        Raises
        ------
        InvalidInput: there is no such posterior.
        """
        require_integer("Samples", "number", number, least=0)
        rule = f"must be below the number of posteriors, {self.posteriors}"
        require(number < self.posteriors, "Samples", "number", rule, number)
        chains = len(self.gain) // self.posteriors

        def part(values: Any) -> Any:
            return values[number * chains : (number + 1) * chains]

        return replace(
            self,
            order_parameters=type(self.order_parameters)(*(part(values) for values in self.order_parameters)),
            **{name: part(getattr(self, name)) for name in RECORDED},
            params=jax.tree.map(part, self.params),
            log_evidence=None if self.log_evidence is None else part(self.log_evidence),
            posteriors=1,
        )

    def at(self, rungs: list[int]) -> "Samples":
        """The same run seen at some of its rungs. What concerns swaps and replicas then has no meaning."""
        pick = np.asarray(rungs)

        def along(values: Any) -> Any:
            return values[:, :, pick]

        return replace(
            self,
            path=jax.tree.map(lambda control: np.asarray(control)[pick], self.path),
            position=self.position[pick],
            order_parameters=type(self.order_parameters)(*(along(values) for values in self.order_parameters)),
            **{name: along(getattr(self, name)) for name in RECORDED},
            params=jax.tree.map(along, self.params),
            step_size=self.step_size[pick],
            scale=self.scale[pick],
        )


INDEPENDENT = ("numpyro-nuts", "blackjax-nuts", "tempered-smc")
"""Samplers that run each rung alone."""
RECORDED = ("log_density", "acceptance", "divergent", "non_finite", "energy", "replica_at", "gain")


def swap_probability(gain: Float[np.ndarray, "*time rung"]) -> Float[np.ndarray, "*time pair"]:
    """Acceptance probability of the swap of each pair (k, k + 1), had it been tried, from the rungs' gains."""
    return np.exp(np.minimum(gain[..., :-1] + gain[..., 1:], 0.0))


def swaps_tried(pairs: int, number: Int[np.ndarray, " scan"]) -> Bool[np.ndarray, "scan pair"]:
    """Whether the swap of rungs (k, k + 1) is tried at a scan: its parity is that of the scan's number."""
    return np.arange(pairs) % 2 == number[:, None] % 2


def _count_returns(here: Bool[np.ndarray, "chain scan replica"], there: Bool[np.ndarray, "chain scan replica"]) -> int:
    """How often a replica that was `here` has been `there` and come back, summed over replicas and chains."""
    trips = 0
    for marks in np.moveaxis(here.astype(np.int8) - there.astype(np.int8), 1, -1).reshape(-1, here.shape[1]):
        visits = marks[marks != 0]
        visits = visits[np.argmax(visits == 1) :] if np.any(visits == 1) else visits[:0]
        trips += int(np.count_nonzero(np.diff(visits))) // 2
    return trips
