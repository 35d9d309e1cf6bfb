"""Of which order is the transition? What the samples of one or several sizes show, and what they do not show.

A verdict is a table of criteria (theory, section 6), each with its figure, and rests on the samples alone. First come
the criteria that a run has to pass to be believed at all: a run that is too short, whose chains never crossed, or whose
ladder broke is *undecided*, whatever its histogram looks like. Then come those of a first-order transition, and of a
second-order one.

What would fool a naive test, and does not fool this one:

* two humps of signed m, which are a symmetry (linear attention above its second-order transition): the magnitude is
  judged;
* half of the chains in each phase, because they started there: R-hat, round trips between the phases, cold against hot;
* a skewed peak, or two humps at one size whose valley does not deepen with the size: the barrier has to grow;
* a kernel estimate that fills a narrow valley, or noise that makes one: the profile's own errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bayes_attn.errors import require
from bayes_attn.evidence import Evidence
from bayes_attn.finite_size import CLEAR, LEAST_SIZES, Growth, growth

Order = Literal["first-order", "second-order", "crossover", "undecided"]

LARGEST_RHAT = 1.02
LEAST_ESS = 200.0
LEAST_PHASE_ROUND_TRIPS = 10
LARGEST_DIFFERENCE = 4.0
"""Between cold and hot starts, in standard errors: it is the largest of many."""
LEAST_SWAP_RATE = 0.05
"""Between neighbours; below it the ladder is broken in two."""
LARGEST_FREE_ENERGY_ERROR = 0.5
"""Standard error along the ladder, in nats."""
LEAST_DEPTH = 0.1
"""A valley shallower than this, in kT, is not taken for one."""
CLEAR_VALLEY = 1.0
"""In kT; a shallower one is so flat that noise decides where both of its peaks are equally high."""
STANDARD_ERRORS = 4.0
"""From how many of them on a depth, a jump or a shift counts."""
BARRIER_WITH_HYSTERESIS = 6.0
"""In kT; over a lower one many chains forget where they came from within the few scans that they are followed."""
EXPLORATION = 0.3
"""Round trips seen over predicted where a run is otherwise in order (0.36 to 0.61 in `benchmarks/engine.py`)."""


@dataclass(frozen=True)
class Criterion:
    """One line of the verdict's table."""

    name: str
    value: float | None
    """None where it could not be measured; then `passed` is None, too."""
    error: float | None
    """Standard error, where the value has one."""
    passed: bool | None
    """None where it does not apply or was not measured."""
    rule: str
    """What is asked for, in words."""


@dataclass(frozen=True)
class Verdict:
    """What the runs show."""

    order: Order
    at_this_size: bool
    """The size dependence that the order rests on was not seen: it holds for what this one size shows."""
    reasons: tuple[str, ...]
    """Why; each a plain clause with its figures."""
    missing: tuple[str, ...]
    """What would have to be done to say more; empty if nothing."""
    criteria: tuple[Criterion, ...]
    evidence: Evidence
    """Of the largest size, which is judged."""
    companions: tuple[Evidence, ...]
    """The smaller sizes that passed their own quality criteria, in increasing order."""
    barriers: Growth | None
    """Of the barrier over the sizes; None with fewer than three."""
    fluctuations: Growth | None
    """Of the largest variance of the order parameter, relative to that with the least data."""
    longer: float | None
    """How many times longer a run would have to be to be believed; 1 if it is, None where length will not do."""

    @property
    def finding(self) -> str:
        """The order, with the reservation that belongs to it."""
        return f"{self.order} at this size" if self.at_this_size else self.order


def judge(runs: Sequence[Evidence]) -> Verdict:
    """Judge the runs of one system at one or several sizes; the largest one is in question.

    Raises
    ------
    InvalidInput: no run, or two of the same size.
    """
    require(len(runs) > 0, "judge", "runs", "must hold one run or more", len(runs))
    ordered = sorted(runs, key=lambda run: run.size)
    sizes = [run.size for run in ordered]
    require(len(set(sizes)) == len(sizes), "judge", "runs", "must have different sizes", sizes)
    largest = ordered[-1]
    believed = [run for run in ordered[:-1] if not _doubts(quality(run))]
    left_out = sorted(set(sizes[:-1]) - {run.size for run in believed})
    series = [*believed, largest]
    barriers, fluctuations = _growths(series)
    checks = quality(largest)
    shape = _shape(largest, believed, barriers, fluctuations)
    doubts = _doubts(checks)
    order, at_this_size, reasons, missing = _order(largest, series, barriers, fluctuations, {c.name: c for c in shape})
    if doubts:
        order, at_this_size, reasons, missing = "undecided", False, doubts, ()
    elif left_out:
        missing = (*missing, f"the runs at {_listed(left_out)} are not to be believed and were left out")
    return Verdict(
        order=order,
        at_this_size=at_this_size,
        reasons=tuple(reasons),
        missing=tuple(missing),
        criteria=(*checks, *shape),
        evidence=largest,
        companions=tuple(believed),
        barriers=barriers,
        fluctuations=fluctuations,
        longer=_longer(largest, order),
    )


def quality(run: Evidence) -> tuple[Criterion, ...]:
    """The criteria that a run has to pass to be believed."""
    low, high = run.borders
    symbol = "|m|" if run.signed else "m"
    way = f"from {symbol} < {low:.2f} to {symbol} > {high:.2f} and back"
    return (
        Criterion("R-hat", run.rhat, None, run.rhat <= LARGEST_RHAT, f"at most {LARGEST_RHAT}"),
        Criterion("effective sample size", run.ess, None, run.ess >= LEAST_ESS, f"at least {LEAST_ESS:.0f}"),
        Criterion(
            "round trips between phases",
            float(run.phase_round_trips),
            None,
            run.phase_round_trips >= LEAST_PHASE_ROUND_TRIPS,
            f"{LEAST_PHASE_ROUND_TRIPS} or more, {way}",
        ),
        Criterion(
            "cold against hot starts",
            run.cold_hot_difference,
            None,
            run.cold_hot_difference <= LARGEST_DIFFERENCE,
            f"differ by at most {LARGEST_DIFFERENCE:.0f} standard errors",
        ),
        Criterion(
            "least swap rate",
            run.swap_rate,
            None,
            run.swap_rate >= LEAST_SWAP_RATE,
            f"at least {LEAST_SWAP_RATE} between all neighbours",
        ),
        Criterion(
            "error of the free energy along the ladder",
            run.free_energy_error if np.isfinite(run.free_energy_error) else None,
            None,
            run.free_energy_error <= LARGEST_FREE_ENERGY_ERROR,
            f"at most {LARGEST_FREE_ENERGY_ERROR:g} nats, by Bennett's ratio (forward and backward means differ by up "
            f"to {run.gap:.2g} in one step)",
        ),
    )


def _doubts(criteria: Sequence[Criterion]) -> tuple[str, ...]:
    return tuple(
        f"{one.name}: {'not known' if one.value is None else f'{one.value:.4g}'} ({one.rule})"
        for one in criteria
        if not one.passed
    )


def _growths(series: Sequence[Evidence]) -> tuple[Growth | None, Growth | None]:
    """Of the barrier, and of the largest fluctuation."""
    known = [run for run in series if run.rise is not None and run.profile is not None]
    if len(known) < 3:
        return None, None
    sizes = np.array([run.size for run in known], dtype=float)
    # A valley that is not seen is 0 to within what would be taken for one.
    barriers = np.array([run.barrier for run in known])
    errors = np.array([max(run.barrier_error, LEAST_DEPTH if run.coexistence is None else 0.0) for run in known])
    risen = [run.rise for run in known if run.rise is not None]
    fluctuation = np.array([one.fluctuation for one in risen])
    fluctuation_error = np.array([one.fluctuation_error for one in risen])
    if not np.all(np.isfinite(errors)) or not np.all(np.isfinite(fluctuation_error)):
        return None, None
    return growth(sizes, barriers, errors), growth(sizes, fluctuation, fluctuation_error)


def _shape(
    run: Evidence, companions: Sequence[Evidence], barriers: Growth | None, fluctuations: Growth | None
) -> tuple[Criterion, ...]:
    """The criteria of a first-order transition, then those of a second-order one."""
    phases, found = run.coexistence, run.rise
    enough = len(companions) + 1 >= LEAST_SIZES
    several, symbol = f"takes {LEAST_SIZES} sizes", "|m|" if run.signed else "m"
    depth, error = run.barrier, run.barrier_error
    rule = f"deeper than {LEAST_DEPTH} kT and {STANDARD_ERRORS:.0f} standard errors"
    known = found is not None and np.isfinite(error)
    lines = [Criterion("barrier", depth if known else None, error if known else None, _deep_or_none(run), rule)]
    shift, shift_error, passed = None, None, None
    if phases is not None:
        shift, shift_error = phases.shift / phases.equal_weight, phases.shift_error / phases.equal_weight
        clear = [one.coexistence for one in companions if one.coexistence and one.coexistence.barrier >= CLEAR_VALLEY]
        if clear:
            before, before_error = clear[0].shift / clear[0].equal_weight, clear[0].shift_error / clear[0].equal_weight
            passed = bool(abs(shift) - abs(before) <= STANDARD_ERRORS * np.hypot(shift_error, before_error))
    lines.append(
        Criterion(
            "equal weight less equal height, relative",
            shift,
            shift_error,
            passed,
            f"not farther from 0, within {STANDARD_ERRORS:.0f} standard errors, than at the smallest size with a "
            f"valley of {CLEAR_VALLEY:g} kT",
        )
    )
    jump, hysteresis = None, run.hysteresis
    if hysteresis is not None and phases is not None:
        if phases.barrier >= BARRIER_WITH_HYSTERESIS:
            beyond = hysteresis.difference > STANDARD_ERRORS * hysteresis.error
            jump = bool(beyond and hysteresis.difference > 0.5 * phases.jump)
        rule = f"more than half of the jump {phases.jump:.3f} between the phases"
    else:
        rule = "where two phases were found"
    lines.append(
        Criterion(
            "hysteresis without exchange",
            None if hysteresis is None else hysteresis.difference,
            None if hysteresis is None else hysteresis.error,
            jump,
            f"{rule}; asked for from {BARRIER_WITH_HYSTERESIS:.0f} kT on",
        )
    )
    lines.append(
        Criterion(
            "growth of the barrier",
            None if barriers is None else barriers.slope,
            None if barriers is None else barriers.slope_error,
            barriers.grows if barriers is not None and enough else None,
            f"positive, kT per unit of size, better than a constant by {CLEAR:.0f} in Akaike's criterion; {several}",
        )
    )
    mirror = run.mirror
    mirrored = None if mirror is None else _is_mirrored(mirror)
    lines.append(
        Criterion(
            "mirror image",
            None if mirror is None else mirror[0],
            None if mirror is None else mirror[1],
            mirrored,
            "m and -m equally likely with the most data: a symmetry that a second-order transition breaks",
        )
    )
    lines.append(
        Criterion(
            "growth of fluctuations",
            None if fluctuations is None else fluctuations.exponent,
            None if fluctuations is None else fluctuations.exponent_error,
            fluctuations.grows if fluctuations is not None and enough and mirrored else None,
            f"exponent of the largest variance of {symbol} over that with the least data, positive; asked for beside a "
            f"mirror image; {several}",
        )
    )
    return tuple(lines)


def _deep_or_none(run: Evidence) -> bool | None:
    """Whether there is a valley; None where errors leave it open.

    The depth shown is the largest of several loads, so that noise alone makes it one or two standard errors.
    """
    depth, error = run.barrier, run.barrier_error
    if run.rise is None or not error < np.inf:
        return None
    if depth > max(LEAST_DEPTH, STANDARD_ERRORS * error) and run.coexistence is not None:
        return True
    return False if error < LEAST_DEPTH and depth < LEAST_DEPTH + 2 * error else None


def _is_mirrored(mirror: tuple[float, float]) -> bool:
    weight, error = mirror
    return bool(error < 0.15 and abs(weight - 0.5) < STANDARD_ERRORS * max(error, 0.01))


def _order(
    run: Evidence,
    series: Sequence[Evidence],
    barriers: Growth | None,
    fluctuations: Growth | None,
    shape: dict[str, Criterion],
) -> tuple[Order, bool, tuple[str, ...], tuple[str, ...]]:
    """(order, only at this size, reasons, what is missing) of a run that is to be believed."""
    symbol = "|m|" if run.signed else "m"
    if run.rise is None:
        reason = f"{symbol} does not change from one half of its range to the other within the loads at hand"
        return "undecided", False, (reason,), ("more data amounts, on both sides of the rise",)
    valley = f"{run.barrier:.2f} ± {run.barrier_error:.2f} kT"
    trips = f"replicas made {run.phase_round_trips:,} round trips between both sides"
    agreement = f"cold and hot starts agree within {run.cold_hot_difference:.1f} standard errors"
    deep = shape["barrier"].passed
    if deep is None:
        reason = f"a valley of {valley} is not resolved: it may be none"
        if not np.isfinite(run.barrier_error):
            reason = f"too few samples lie in the valley of about {run.barrier:.2f} kT to know the error of its depth"
        return "undecided", False, (reason, trips), ("a longer run or more rungs, for the depth of the valley",)
    sizes = _listed([one.size for one in series])
    more_sizes = f"the same at smaller sizes, {LEAST_SIZES} in all (there are {len(series)}, at {sizes})"
    if deep:
        phases = run.coexistence
        assert phases is not None
        two = (
            f"{symbol} has two peaks with a valley of {valley} between them where they are equally high "
            f"(load {phases.equal_height:.4f} ± {phases.equal_height_error:.4f})"
        )
        if shape["hysteresis without exchange"].passed is False:
            reason = "cold and hot starts do not differ without exchange, as they must behind such a barrier"
            return "undecided", False, (two, reason), ("a look at the explorer",)
        grows = shape["growth of the barrier"].passed
        if grows is None and len(series) < LEAST_SIZES:
            return "first-order", True, (two, trips, agreement), (more_sizes,)
        assert barriers is not None
        slope = f"{barriers.slope:.3f} ± {barriers.slope_error:.3f} kT per unit of size over {sizes}"
        if grows is None:
            return "undecided", False, (two, f"whether it grows is open ({slope})"), ("larger sizes, or longer runs",)
        if not grows:
            reason = f"the valley does not deepen with the size ({slope}): two humps, but no phases"
            return "crossover", False, (two, reason), ()
        if shape["equal weight less equal height, relative"].passed is False:
            reason = "the points of equal weight and of equal height move away from each other"
            return "undecided", False, (two, reason), ("larger sizes",)
        return "first-order", False, (two, f"the barrier grows by {slope}", trips, agreement), ()
    single = f"{symbol} has a single peak at every load (deepest valley {valley})"
    if shape["mirror image"].passed:
        mirror = "signed m has two humps that are each other's mirror image: a broken symmetry, not two phases"
        grows = shape["growth of fluctuations"].passed
        if grows is None and len(series) < LEAST_SIZES:
            return "second-order", True, (single, mirror, trips), (more_sizes,)
        assert fluctuations is not None
        power = (
            f"the variance of {symbol}, relative to that with the least data, grows with the power "
            f"{fluctuations.exponent:.2f} ± {fluctuations.exponent_error:.2f} of the size"
        )
        if grows is None:
            return "undecided", False, (single, mirror, f"whether fluctuations grow is open: {power}"), ("more sizes",)
        if grows:
            return "second-order", False, (single, mirror, power), ()
        return "crossover", False, (single, f"fluctuations do not grow with the size: {power}"), ()
    missing = () if len(series) >= LEAST_SIZES else (more_sizes,)
    return "crossover", len(series) < LEAST_SIZES, (single, trips, agreement), missing


def _listed(sizes: Sequence[float]) -> str:
    return "sizes " + ", ".join(f"{size:g}" for size in sizes)


def _longer(run: Evidence, order: Order) -> float | None:
    """How many times longer the run would have to be: by its round trips, effective sample size and valley."""
    factors = [1.0, LEAST_ESS / max(run.ess, 1.0)]
    if run.phase_round_trips > 0:
        factors.append(LEAST_PHASE_ROUND_TRIPS / run.phase_round_trips)
    else:
        expected = EXPLORATION * run.predicted_round_trips
        if expected < 1e-3:
            return None
        factors.append(LEAST_PHASE_ROUND_TRIPS / expected)
    if order == "undecided" and np.isfinite(run.barrier_error) and run.barrier > LEAST_DEPTH:
        factors.append((STANDARD_ERRORS * run.barrier_error / run.barrier) ** 2)
    if order == "undecided" and run.rhat > LARGEST_RHAT:
        # R-hat - 1 falls in proportion to the length.
        factors.append((run.rhat - 1) / (LARGEST_RHAT - 1))
    return max(factors)
