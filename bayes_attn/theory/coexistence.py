"""Two phases along one control: spinodals, coexistence and barrier (theory, sections 4b and 5)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import BSpline, make_interp_spline
from scipy.optimize import root_scalar

from bayes_attn.theory.softmax import SaddlePoints


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
