"""Where the transition lies and of which order it is (theory, sections 4 and 6).

Softmax: a curve of saddle points along which a control (the load at a fixed field, or the field at a fixed load) has a
maximum and then a minimum where the transition is first-order: these are the spinodals. The phases coexist where the
effective action is equal on the two outer branches, and the barrier is its value on the middle branch above them.
Without such a fold the head appears in a crossover.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import BSpline, make_interp_spline
from scipy.optimize import root_scalar

from bayes_attn.errors import require
from bayes_attn.posterior import CopyPosterior
from bayes_attn.priors import RelativeBias
from bayes_attn.theory import shared_row
from bayes_attn.theory.action import specification
from bayes_attn.theory.linear import critical_load
from bayes_attn.theory.softmax import SaddlePoints, s_curves

COARSE = 0.75
"""Resolution, relative to the requested one, whose result is compared to give the numerical error."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """A transition of one posterior, from the theory alone; None where an entry does not apply."""

    order: Literal["first", "second", "crossover"]
    critical_load: float | None = None
    """alpha at coexistence (first order) or at the loss of stability of m = 0 (second order)."""
    critical_load_error: float | None = None
    """Numerical error of `critical_load`: the change when every grid is refined; 0 for a closed form."""
    critical_data: float | None = None
    """P at `critical_load`, in sequences."""
    spinodal_low: float | None = None
    """Load at which the copy phase appears."""
    spinodal_low_error: float | None = None
    """Numerical error of `spinodal_low`; likewise for the next."""
    spinodal_high: float | None = None
    """Load at which the disordered phase loses metastability."""
    spinodal_high_error: float | None = None
    barrier: float | None = None
    """Height of F between the phases at coexistence, in kT."""
    barrier_error: float | None = None
    """Numerical error of `barrier`, in kT."""
    copy_mass_disordered: float | None = None
    """m of the disordered phase at coexistence; likewise the next three."""
    copy_mass_copy: float | None = None
    participation_disordered: float | None = None
    participation_copy: float | None = None
    copy_mass_barrier: float | None = None
    """m on top of the barrier: the natural border between the two phases."""
    steepest_load: float
    """Load about which the rise of the copy mass centres; the critical load where there is one."""
    steepest_load_error: float | None = None
    """Numerical error of `steepest_load`."""


class Coexistence(NamedTuple):
    """Two phases along one control, the load or the field; (m, q) of the phases at coexistence."""

    critical: float
    spinodal_low: float
    spinodal_high: float
    barrier: float
    """In kT."""
    disordered: tuple[float, float]
    copied: tuple[float, float]
    copy_mass_barrier: float


class Folds(NamedTuple):
    """A curve of saddle points as splines of a running index, with the turning points of a control."""

    curve: SaddlePoints
    control: Float[Array | np.ndarray, " point"]
    turns: Float[np.ndarray, " turn"]
    """Running indices at which the control has an extremum."""


def spline(values: Float[Array | np.ndarray, " point"]) -> BSpline:
    """Quintic spline of a running index."""
    return make_interp_spline(np.arange(len(values)), np.asarray(values), k=5)


def folds(curve: SaddlePoints, control: Float[Array | np.ndarray, " point"]) -> Folds:
    """Where the control turns along a curve."""
    slope = spline(control).derivative()
    sampled = slope(fine := np.linspace(0, len(control) - 1, 20 * len(control)))
    changes = np.flatnonzero(np.diff(np.sign(sampled)))
    turns = [root_scalar(slope, bracket=(fine[i], fine[i + 1])).root for i in changes]
    return Folds(curve, control, np.array(turns))


def coexistence(lines: Folds, rows: float) -> Coexistence | None:
    """The phases along a control, or None where it does not fold.

    `rows` are the independent rows R, the weight of a field. Raises ArithmeticError where the branches are not
    resolved.
    """
    if len(lines.turns) < 2:
        return None
    curve = lines.curve
    control = spline(lines.control)
    # F with the term of the field: equal on the outer branches, both at the same load and field.
    action = spline(np.asarray(curve.effective_action - rows * curve.field * curve.copy_mass))
    copy_mass, participation = spline(curve.copy_mass), spline(curve.participation)
    (top, bottom), last = lines.turns[:2], float(len(lines.control) - 1)

    def index_at(value: float, start: float, end: float) -> float:
        return root_scalar(lambda i: float(control(i)) - value, bracket=(start, end), xtol=1e-13, rtol=1e-14).root

    def difference(value: float) -> float:
        """F of the copy branch minus F of the disordered branch."""
        return float(action(index_at(value, bottom, last)) - action(index_at(value, 0, top)))

    low, high = float(control(bottom)), float(control(top))
    margin = 1e-9 * (high - low)
    bracket = low + margin, high - margin
    if not difference(bracket[0]) > 0 > difference(bracket[1]):
        raise ArithmeticError(f"the branches near {low:.4g} to {high:.4g} are not resolved")
    critical = root_scalar(difference, bracket=bracket, xtol=1e-13 * (high - low)).root
    disordered, middle = index_at(critical, 0, top), index_at(critical, top, bottom)
    copied = index_at(critical, bottom, last)
    return Coexistence(
        critical=critical,
        spinodal_low=low,
        spinodal_high=high,
        barrier=float(action(middle) - action(disordered)),
        disordered=(float(copy_mass(disordered)), float(participation(disordered))),
        copied=(float(copy_mass(copied)), float(participation(copied))),
        copy_mass_barrier=float(copy_mass(middle)),
    )


def _along_load(posterior: CopyPosterior, curve: SaddlePoints) -> Transition:
    lines = folds(curve, curve.load)
    found = coexistence(lines, float(specification(posterior, "softmax").action.rows))
    if found is None:
        load, growth = spline(curve.load), spline(curve.copy_mass).derivative()
        index = np.linspace(0, len(curve.load) - 1, 40_000)
        steepest = float(load(index[np.argmax(growth(index) / load.derivative()(index))]))
        return Transition(order="crossover", steepest_load=steepest)
    return Transition(
        order="first",
        critical_load=found.critical,
        critical_data=posterior.num_sequences(found.critical),
        spinodal_low=found.spinodal_low,
        spinodal_high=found.spinodal_high,
        barrier=found.barrier,
        copy_mass_disordered=found.disordered[0],
        copy_mass_copy=found.copied[0],
        participation_disordered=found.disordered[1],
        participation_copy=found.copied[1],
        copy_mass_barrier=found.copy_mass_barrier,
        steepest_load=found.critical,
    )


def _shared(posterior: CopyPosterior, field: float, resolution: float) -> Transition:
    found, steepest = shared_row.find(posterior, field, resolution)
    if found is None:
        return Transition(order="crossover", steepest_load=steepest)
    return Transition(
        order="first",
        critical_load=found.critical_load,
        critical_data=posterior.num_sequences(found.critical_load),
        spinodal_low=found.spinodal_low,
        spinodal_high=found.spinodal_high,
        barrier=found.barrier,
        copy_mass_disordered=found.disordered[0],
        copy_mass_copy=found.copied[0],
        participation_disordered=found.disordered[1],
        participation_copy=found.copied[1],
        copy_mass_barrier=found.copy_mass_barrier,
        steepest_load=steepest,
    )


def _with_errors(fine: Transition, coarse: Transition) -> Transition:
    """`fine` with its numerical errors: the change from the coarser grids."""

    def change(name: str) -> float | None:
        one, other = getattr(fine, name), getattr(coarse, name)
        return None if one is None or other is None else abs(one - other)

    names = ("critical_load", "spinodal_low", "spinodal_high", "barrier", "steepest_load")
    return replace(fine, **{f"{name}_error": change(name) for name in names})


def transition(posterior: CopyPosterior, field: float = 0.0) -> Transition:
    """The transition of a posterior of the copy task as the load grows, at a fixed field.

    With the prior RelativeBias, whose single row has no saddle points, phases are the peaks of the exact density of m:
    they coexist at equal weight, spinodals are where a peak vanishes, and the barrier is the lower peak's above the
    valley.

    Tokens are i.i.d. with the task's frequencies. Only the fields of `posterior` are read (task, attention, prior,
    value scale, noise), never its densities: a data set's posterior is placed by the same theory as the population's.

    Raises
    ------
    InvalidInput: there is no theory for this attention kind, prior or task, or none with a field.
    ArithmeticError: no solution was found.
    """
    return transitions([posterior], [field])[0]


def transitions(posteriors: Sequence[CopyPosterior], fields: Sequence[float] | None = None) -> list[Transition]:
    """`transition` of many settings at once, solved together. Raises as `transition`, for the first that fails."""
    fields = [0.0] * len(posteriors) if fields is None else fields
    found: dict[int, Transition] = {}
    softmax: list[int] = []
    for i, (posterior, field) in enumerate(zip(posteriors, fields, strict=True)):
        require(abs(field) < float("inf"), "theory.transition", "field", "must be a finite number", field)
        if posterior.attention == "softmax" and isinstance(posterior.prior, RelativeBias):
            fine, coarse = (_shared(posterior, field, resolution) for resolution in (1.0, COARSE))
            found[i] = _with_errors(fine, coarse)
        elif posterior.attention == "softmax":
            softmax.append(i)
        else:
            require(field == 0.0, "theory.transition", "field", "must be 0 for linear attention", field)
            critical = critical_load(posterior)
            found[i] = Transition(
                order="second",
                critical_load=critical,
                critical_load_error=0.0,
                critical_data=posterior.num_sequences(critical),
                steepest_load=critical,
                steepest_load_error=0.0,
            )
    chosen, at = [posteriors[i] for i in softmax], [float(fields[i]) for i in softmax]
    curves = [s_curves(chosen, resolution, at) for resolution in (1.0, COARSE)]
    for i, fine, coarse in zip(softmax, *curves, strict=True):
        # Every second point, so that the splines along the curve are coarser as well.
        halved = SaddlePoints(*(values[::2] for values in coarse))
        found[i] = _with_errors(_along_load(posteriors[i], fine), _along_load(posteriors[i], halved))
    return [found[i] for i in range(len(posteriors))]
