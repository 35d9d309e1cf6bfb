"""What a run shows about its transition, in one sentence, and what it does not show.

A verdict rests on the samples; of the theory it takes at most the borders between which round trips are counted. One
size cannot tell a first-order transition from a sharp crossover (theory, section 6): the strongest finding here is two
phases at one size.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from bayes_attn.diagnostics import Estimate, estimate, two_peaks
from bayes_attn.sampling import Samples

LARGEST_RHAT = 1.02
LEAST_ESS = 200.0
LEAST_PHASE_ROUND_TRIPS = 10
LEAST_DEPTH = 0.1
"""A valley shallower than this, in kT, is not taken for one."""
STANDARD_ERRORS = 4.0
"""The largest of the rungs' depths or differences counts from this many standard errors on."""


@dataclass(frozen=True)
class Verdict:
    """What a run at one size shows."""

    finding: Literal["two phases", "continuous", "undecided"]
    reasons: tuple[str, ...]
    """Why; each a plain clause with its figures."""
    estimates: tuple[Estimate, ...]
    """Of |copy mass|, per rung."""
    depth: float
    """ln(lower peak / valley) of |copy mass| where it is largest, in kT; 0 for a single peak everywhere."""
    depth_error: float
    depth_rung: int
    phase_round_trips: int
    cold_hot_difference: float
    """Largest difference of |copy mass| between cold and hot starts over the rungs, in standard errors."""


def judge(
    samples: Samples, hot: Bool[np.ndarray, " chain"], borders: tuple[float, float], rungs: list[int] | None = None
) -> Verdict:
    """Judge one run of the copy task along the data amount.

    Parameters
    ----------
    samples: of replica exchange along a ladder of loads.
    hot: which chains started from the copy pattern.
    borders: copy masses below the first count as the disordered phase, above the second as the copy phase; round
        trips between phases are counted with them.
    rungs: those of the path that are judged (default: all); a path may lead through others.
    """
    rows = list(range(samples.rungs)) if rungs is None else rungs
    copy_mass = np.abs(samples.order_parameters[0][:, :, rows])
    symbol = "|m|" if np.any(samples.order_parameters[0] < 0) else "m"
    estimates = tuple(estimate(copy_mass[:, :, row]) for row in range(len(rows)))
    depths = [two_peaks(copy_mass[:, :, row]) for row in range(len(rows))]
    rung = int(np.argmax([depth for depth, _ in depths]))
    depth, depth_error = depths[rung]
    trips = samples.phase_round_trips(*borders, rows)
    difference = _cold_hot_difference(copy_mass, hot)

    doubts = []
    if (rhat := max(e.rhat for e in estimates)) > LARGEST_RHAT:
        doubts.append(f"R-hat reaches {rhat:.3f} (at most {LARGEST_RHAT} is asked for)")
    if (ess := min(e.ess for e in estimates)) < LEAST_ESS:
        doubts.append(f"the effective sample size falls to {ess:.0f} (at least {LEAST_ESS:.0f} is asked for)")
    if trips < LEAST_PHASE_ROUND_TRIPS:
        doubts.append(
            f"replicas made {trips} round trips from {symbol} < {borders[0]:.2f} to {symbol} > {borders[1]:.2f} "
            f"(at least {LEAST_PHASE_ROUND_TRIPS} are asked for)"
        )
    if difference > STANDARD_ERRORS:
        limit = f"at most {STANDARD_ERRORS:.0f} are allowed"
        doubts.append(f"cold and hot starts differ by {difference:.1f} standard errors ({limit})")
    is_deep = depth > max(LEAST_DEPTH, STANDARD_ERRORS * depth_error)
    facts = (
        f"replicas made {trips:,} round trips from {symbol} < {borders[0]:.2f} to {symbol} > {borders[1]:.2f}",
        f"cold and hot starts agree within {difference:.1f} standard errors",
        f"R-hat is at most {rhat:.3f} and the effective sample size at least {ess:.0f}",
    )
    finding = "undecided" if doubts else ("two phases" if is_deep else "continuous")
    return Verdict(
        finding=finding,
        reasons=tuple(doubts) or facts,
        estimates=estimates,
        depth=depth,
        depth_error=depth_error,
        depth_rung=rung,
        phase_round_trips=trips,
        cold_hot_difference=difference,
    )


def _cold_hot_difference(copy_mass: Float[np.ndarray, "chain scan rung"], hot: Bool[np.ndarray, " chain"]) -> float:
    scores = [0.0]
    for rung in range(copy_mass.shape[-1]):
        cold_half, hot_half = estimate(copy_mass[~hot, :, rung]), estimate(copy_mass[hot, :, rung])
        error = np.hypot(cold_half.error, hot_half.error)
        scores.append(abs(cold_half.mean - hot_half.mean) / error if error > 0 else 0.0)
    return float(max(scores))
