"""The plane of load and field: the line of first-order transitions and the critical point where it ends (section 5).

At a fixed load, F(m) minimised over q gives the field (1/R) dF/dm under which each m is stationary. Where that field
falls as m grows, two phases compete: its maximum and minimum are the spinodals, and the phases coexist where their
depths, tilted by the field, are equal. At the end point the fall has shrunk to a point.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.integrate import trapezoid
from scipy.interpolate import make_interp_spline
from scipy.optimize import root_scalar

from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.action import specification
from bayes_attn.theory.coexistence import Coexistence, coexistence, folds
from bayes_attn.theory.softmax import SaddlePoints, log_densities_along, profiles
from bayes_attn.theory.transition import COARSE, transition

SEARCH = np.geomspace(0.05, 8.0, 32)
"""Where the end point is first looked for, in units of the load of the transition (or crossover) at field 0."""


@dataclass(frozen=True, kw_only=True)
class EndPoint:
    """Critical point at which the line of first-order transitions ends; a fluid's critical point, in our plane."""

    load: float
    field: float
    """Positive: at field 0 the transition is first-order. Negative: there it is a crossover."""
    copy_mass: float
    load_error: float
    """Numerical: the change when every grid is refined; likewise the next."""
    field_error: float


def _steepest_fall(curve: SaddlePoints) -> tuple[float, float, float]:
    """(slope, field, m) where the field rises least along the log-odds of m."""
    log_odds = np.log(curve.copy_mass) - np.log1p(-np.asarray(curve.copy_mass))
    known = np.isfinite(curve.field)
    field = make_interp_spline(log_odds[known], np.asarray(curve.field)[known], k=5)
    fine = np.linspace(log_odds[known][0], log_odds[known][-1], 10 * len(log_odds))
    slope = field.derivative()(fine)
    # The slope rises without bound at both ends; a minimum at an end would be numerical.
    inside = slice(10, -10)
    lowest = int(np.argmin(slope[inside])) + 10
    return float(slope[lowest]), float(field(fine[lowest])), float(1 / (1 + np.exp(-fine[lowest])))


def _end(posterior: CopyPosterior, bracket: tuple[float, float], resolution: float) -> tuple[float, float, float]:
    """(load, field, m) of the end point between two loads."""

    def at(load: float) -> tuple[float, float, float]:
        return _falls(posterior, np.array([load]), resolution)[0]

    load = root_scalar(lambda load: at(load)[0], bracket=bracket, rtol=1e-10).root
    _, field, copy_mass = at(load)
    return load, field, copy_mass


def _falls(posterior: CopyPosterior, loads: np.ndarray, resolution: float) -> list[tuple[float, float, float]]:
    curves = profiles(posterior, loads, resolution)
    return [_steepest_fall(SaddlePoints(*(values[i] for values in curves))) for i in range(len(loads))]


def _first_fall(loads: np.ndarray, found: list[tuple[float, float, float]]) -> int:
    """Number of the first load at which the field falls somewhere."""
    falls = np.array([slope for slope, _, _ in found]) < 0
    first = int(np.argmax(falls))
    if not falls.any() or first == 0:
        raise ArithmeticError(f"no critical end point lies between loads {loads[0]:.3g} and {loads[-1]:.3g}")
    return first


def _nearly_end(posterior: CopyPosterior, critical_load: float) -> tuple[float, float]:
    """(load, field) of the end point, to 1e-4: enough for a path, by rows of profiles that are compiled only once."""
    loads = np.geomspace(0.05, 1.0, LINE_VERTICES) * critical_load
    first = _first_fall(loads, _falls(posterior, loads, COARSE))
    loads = np.linspace(loads[first - 1], loads[first], LINE_VERTICES)
    found = _falls(posterior, loads, COARSE)
    first = _first_fall(loads, found)
    (before, low, _), (after, high, _) = found[first - 1], found[first]
    share = before / (before - after)
    return float(loads[first - 1] + share * (loads[first] - loads[first - 1])), low + share * (high - low)


def end_point(posterior: CopyPosterior) -> EndPoint:
    """The critical end point of the line of first-order transitions of softmax attention (theory, section 5).

    Raises
    ------
    InvalidInput: there is no theory for the posterior.
    ArithmeticError: it was not found.
    """
    search = SEARCH * transition(posterior).steepest_load
    first = _first_fall(search, _falls(posterior, search, COARSE))
    # A little wider, for the finer grids see the end elsewhere.
    bracket = (0.99 * search[first - 1], 1.01 * search[first])
    fine, coarse = (_end(posterior, bracket, resolution) for resolution in (1.0, COARSE))
    load, field, copy_mass = fine
    return EndPoint(
        load=load,
        field=field,
        copy_mass=copy_mass,
        load_error=abs(load - coarse[0]),
        field_error=abs(field - coarse[1]),
    )


def coexistence_line(posterior: CopyPosterior, loads: Float[np.ndarray, " load"]) -> list[Coexistence | None]:
    """Where the phases coexist along the field, at each load: the first-order line with its spinodals.

    None at loads below the end point. Raises as `end_point`.
    """
    return _coexistences(posterior, profiles(posterior, loads))


def _coexistences(posterior: CopyPosterior, curves: SaddlePoints) -> list[Coexistence | None]:
    rows = float(specification(posterior, "softmax").action.rows)
    lines = []
    for i in range(len(curves.load)):
        known = np.isfinite(curves.field[i])
        curve = SaddlePoints(*(np.asarray(values[i])[known] for values in curves))
        lines.append(coexistence(folds(curve, curve.field), rows))
    return lines


LINE_VERTICES = 16
BEYOND = 0.1
"""How far past the end point the way to it leads, in units of its length: there, local moves change the phase."""


def way_to_end(posterior: CopyPosterior) -> tuple[Float[np.ndarray, " vertex"], Float[np.ndarray, " vertex"]]:
    """Loads and fields along the line of coexistence, from the transition without a field to just beyond the end point.

    At the vertices between, the field is the one at which both phases have the same weight in p(m) (section 4b), which
    is a little beside the one of equal depth that `coexistence_line` gives: exp(-F) has peaks of unlike widths.

    Raises
    ------
    InvalidInput: there is no theory for the posterior.
    ArithmeticError: there is no first-order transition without a field, or its end point was not found.
    """
    start = transition(posterior)
    if start.critical_load is None or start.order != "first":
        raise ArithmeticError(
            "there is no first-order transition without a field, and so no line that leads away from it"
        )
    end_load, end_field = _nearly_end(posterior, start.critical_load)
    rows = float(specification(posterior, "softmax").action.rows)
    loads = np.linspace(start.critical_load, end_load, LINE_VERTICES)
    fields = [0.0]
    curves = profiles(posterior, loads[1:-1], COARSE)
    lines = _coexistences(posterior, curves)
    for line, (copy_mass, log_density) in zip(lines, log_densities_along(curves), strict=True):
        if line is None:  # so near the end point that the folds are not resolved
            fields.append(np.nan)
            continue
        copied = copy_mass > line.copy_mass_barrier

        def log_odds(
            field: float, m: np.ndarray = copy_mass, at: np.ndarray = log_density, c: np.ndarray = copied
        ) -> float:
            tilted = at + rows * field * m
            weight = np.exp(tilted - tilted.max())
            return float(np.log(trapezoid(weight[c], m[c])) - np.log(trapezoid(weight[~c], m[~c])))

        # The log-odds rise with the field, by about 10 within this width.
        width = line.spinodal_high - line.spinodal_low + 10 / (rows * (line.copied[0] - line.disordered[0]))
        bracket = line.critical - width, line.critical + width
        fields.append(root_scalar(log_odds, bracket=bracket, rtol=1e-8).root)
    whole = np.array([*fields, end_field])
    known = np.isfinite(whole)
    whole = np.interp(-loads, -loads[known], whole[known])
    loads = np.append(loads, end_load + BEYOND * (end_load - loads[0]))
    return loads, np.append(whole, end_field + BEYOND * end_field)
