"""What the samples of one run, at one size, say about a transition: figures with errors, and how far to trust them.

Nothing here comes from the theory: a user's own posterior is measured in the same way.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from bayes_attn.bimodality import Humps, humps
from bayes_attn.diagnostics import Estimate, PhaseRow, bfmi, estimate, phase_diagnostics
from bayes_attn.free_energy import (
    Coexistence,
    Pool,
    Profile,
    Rise,
    coexistence,
    crossing_error,
    deepest,
    phase_normalisations,
    pool,
    rise,
    stepping_stone,
)
from bayes_attn.posterior import Posterior
from bayes_attn.sampling import Controls, Samples, Schedule, Starts, sample

HYSTERESIS = Schedule(warmup=100, draws=1, thin=200)
HYSTERESIS_CHAINS = 64
"""So many that the few which cross a high barrier in this time leave the rest's memory clear."""
BRANCH_LOADS = 11


@dataclass(frozen=True)
class Hysteresis:
    """Cold and hot starts at one load without exchange, after a while: whether they remember where they came from."""

    load: float
    scans: int
    difference: float
    """Mean order parameter of hot starts less that of cold ones."""
    error: float


@dataclass(frozen=True)
class PhaseFreeEnergies:
    """-log Z of each phase along the load, in kT, relative to the path's first rung: two branches that cross."""

    loads: Float[np.ndarray, " load"]
    cut: float
    """Order parameter that parts the phases."""
    disordered: Float[np.ndarray, " load"]
    disordered_error: Float[np.ndarray, " load"]
    copy: Float[np.ndarray, " load"]
    copy_error: Float[np.ndarray, " load"]
    difference_error: Float[np.ndarray, " load"]
    """Of the copy phase's less the disordered one's."""


@dataclass(frozen=True)
class Evidence:
    """One run at one size."""

    size: float
    """The size variable that runs are compared along."""
    loads: Float[np.ndarray, " rung"]
    """Of the judged rungs."""
    estimates: tuple[Estimate, ...]
    """Of |order parameter|, per judged rung."""
    signed: bool
    """Whether the order parameter has both signs, so that its magnitude is judged."""
    rhat: float
    """Largest over the judged rungs, of the order parameter and of the log-density."""
    ess: float
    """Least effective sample size, likewise."""
    borders: tuple[float, float]
    """Order parameters below and above which a replica counts as being in a phase."""
    phase_round_trips: int
    """Of replicas between the phases, counted at the judged rungs."""
    predicted_round_trips: float
    """Of replicas along the whole path in this time, if exploration were perfect."""
    cold_hot_difference: float
    """Largest difference of the order parameter between cold and hot starts over the judged rungs, in its errors."""
    swap_rate: float
    """Least one between neighbours."""
    gap: float
    """Largest difference of the forward and the backward stepping stone in one step between neighbours, in nats."""
    free_energy_error: float
    """Largest standard error of the free energy along the ladder, in nats; infinite where it is not known."""
    rise: Rise | None
    """None where half of the weight does not change sides."""
    coexistence: Coexistence | None
    """None where no two peaks of equal height are seen."""
    profile: Profile | None
    """At equal height, or where the valley is deepest."""
    mirror: tuple[float, float] | None
    """Weight of the negative order parameters at the last judged rung, with its error; None where there are none."""
    hysteresis: Hysteresis | None
    middle: float
    """Load of the judged rung next to the transition, which the next three are about."""
    humps: Humps | None
    """Of the order parameter; None where it is constant."""
    convergence: tuple[PhaseRow, ...]
    """Of all order parameters and the log-density, overall and in each phase."""
    phase_free_energies: PhaseFreeEnergies | None
    """None where no two phases were found."""
    bfmi: float
    """Least energy Bayesian fraction of missing information over chains and judged rungs; NaN where not known."""

    @property
    def barrier(self) -> float:
        """ln(peak / valley), in kT: at equal height, or of the deepest valley seen; 0 for one peak everywhere."""
        if self.coexistence is not None:
            return self.coexistence.barrier
        return 0.0 if self.profile is None else self.profile.depth

    @property
    def barrier_error(self) -> float:
        if self.coexistence is not None:
            return self.coexistence.barrier_error
        return float("inf") if self.profile is None else self.profile.depth_error


def measure(
    posterior: Posterior,
    samples: Samples,
    hot: Bool[np.ndarray, " chain"],
    size: float,
    rungs: list[int] | None = None,
    loads: tuple[float, float] | None = None,
    hysteresis: Hysteresis | None = None,
) -> Evidence:
    """Measure one run.

    Parameters
    ----------
    posterior: what was sampled.
    samples: of replica exchange on any path.
    hot: which chains started from the ordered side.
    size: of the system.
    rungs: those that are judged, at inverse temperature 1 and no field (default: all); a path may lead through others.
    loads: where to look for the transition (default: the range of the judged rungs).
    hysteresis: measured apart (`hysteresis`).
    """
    rows = list(range(samples.rungs)) if rungs is None else rungs
    along = np.asarray(samples.path.load)[rows]
    signed = bool(np.any(samples.order_parameters[0] < 0))
    order = np.abs(np.asarray(samples.order_parameters[0])[:, :, rows])
    judged = samples.at(rows)
    pooled = pool(posterior, samples)
    low, high = (float(along.min()), float(along.max())) if loads is None else loads
    found = rise(pooled, low, high)
    phases = None if found is None else coexistence(pooled, found)
    profile = phases.profile if phases is not None else (None if found is None else deepest(pooled, found))
    estimates = tuple(estimate(order[:, :, row]) for row in range(len(rows)))
    others = [estimate(samples.log_density[:, :, row]) for row in rows]
    borders = _borders(estimates, phases)
    trips = samples.phase_round_trips(*borders, rows)
    branches = None
    if phases is not None:
        floor = crossing_error(trips) / abs(phases.latent_heat)
        phases = replace(
            phases,
            equal_weight_error=max(phases.equal_weight_error, floor),
            equal_height_error=max(phases.equal_height_error, floor),
        )
        branches = _branches(pooled, phases)
    middle = int(np.argmin(np.abs(along - (along.mean() if found is None else found.load))))
    cut = found.cut if found is not None else float(np.mean(borders))
    scalars = dict(zip(judged.order_parameters._fields, judged.order_parameters, strict=True))
    scalars |= {"log_density": judged.log_density}
    series = {name: np.asarray(values)[:, :, middle] for name, values in scalars.items()}
    energies = [bfmi(np.asarray(judged.energy)[:, :, row]) for row in range(len(rows))]
    known = np.concatenate(energies)[np.isfinite(np.concatenate(energies))]
    varies = np.ptp(order[:, :, middle]) > 0
    last = np.asarray(samples.order_parameters[0])[:, :, rows[-1]]
    negative = estimate((last < 0).astype(float)) if signed else None
    ratios = stepping_stone(samples)
    return Evidence(
        size=size,
        loads=along,
        estimates=estimates,
        signed=signed,
        rhat=max(one.rhat for one in [*estimates, *others]),
        ess=min(one.ess for one in [*estimates, *others]),
        borders=borders,
        phase_round_trips=trips,
        predicted_round_trips=samples.predicted_round_trip_rate * len(hot) * samples.schedule.scans,
        cold_hot_difference=_cold_hot_difference(order, hot),
        swap_rate=float(np.min(samples.swap_rate)),
        gap=ratios.gap,
        free_energy_error=float(np.max(ratios.error)) if np.all(np.isfinite(ratios.error)) else float("inf"),
        rise=found,
        coexistence=phases,
        profile=profile,
        mirror=None if negative is None else (negative.mean, negative.error),
        hysteresis=hysteresis,
        middle=float(along[middle]),
        humps=humps(order[:, :, middle], estimates[middle].ess) if varies else None,
        convergence=phase_diagnostics(series, order[:, :, middle], cut),
        phase_free_energies=branches,
        bfmi=float(known.min()) if len(known) else float("nan"),
    )


def _branches(pooled: Pool, phases: Coexistence) -> PhaseFreeEnergies:
    """Over the loads between which either phase keeps a hundredth of the weight."""
    valley = phases.profile.valley
    assert valley is not None
    reach = np.log(100) / abs(phases.latent_heat)
    loads = phases.equal_weight + np.linspace(-reach, reach, BRANCH_LOADS)
    values, errors, difference_error = phase_normalisations(pooled, loads, valley)
    return PhaseFreeEnergies(loads, valley, -values[:, 0], errors[:, 0], -values[:, 1], errors[:, 1], difference_error)


def _borders(estimates: tuple[Estimate, ...], phases: Coexistence | None) -> tuple[float, float]:
    """Halfway from each phase to the valley; without two phases, a quarter in from the least and largest mean."""
    if phases is not None and phases.profile.peaks is not None and phases.profile.valley is not None:
        (low, high), valley = phases.profile.peaks, phases.profile.valley
        return (low + valley) / 2, (valley + high) / 2
    means = [one.mean for one in estimates]
    low, high = min(means), max(means)
    return low + 0.25 * (high - low), low + 0.75 * (high - low)


def _cold_hot_difference(order: Float[np.ndarray, "chain scan rung"], hot: Bool[np.ndarray, " chain"]) -> float:
    scores = [0.0]
    for rung in range(order.shape[-1]):
        cold_half, hot_half = estimate(order[~hot, :, rung]), estimate(order[hot, :, rung])
        error = np.hypot(cold_half.error, hot_half.error)
        scores.append(abs(cold_half.mean - hot_half.mean) / error if error > 0 else 0.0)
    return float(max(scores))


def hysteresis(posterior: Posterior, load: float, starts: Starts, seed: int) -> Hysteresis:
    """Run cold and hot starts (in turn, as `starts` has them) at one load without exchange.

    The number of chains of `starts` is not used: there are `HYSTERESIS_CHAINS`.
    """
    alone = Controls(np.ones(1), np.array([load]), np.zeros(1))
    samples = sample(posterior, alone, Starts(starts.draws, HYSTERESIS_CHAINS), HYSTERESIS, seed)
    order = np.abs(np.asarray(samples.order_parameters[0])[:, HYSTERESIS.scans // 2 :, 0])
    cold, hot = estimate(order[0::2]), estimate(order[1::2])
    return Hysteresis(load, HYSTERESIS.total, hot.mean - cold.mean, float(np.hypot(cold.error, hot.error)))
