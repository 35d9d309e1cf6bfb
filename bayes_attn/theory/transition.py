"""Where the transition lies and of which order it is (theory, sections 4 and 6).

Softmax: the S-curve of saddle points. Where the load has a maximum and a minimum along it, the transition is
first-order: these are the spinodals, the transition is where the effective action F is equal on the two outer
branches, and the barrier is F on the middle branch above them. Otherwise the head appears in a crossover.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import BSpline, make_interp_spline
from scipy.optimize import root_scalar

from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.linear import critical_load
from bayes_attn.theory.softmax import SaddlePoints, s_curve

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
    spinodal_high: float | None = None
    """Load at which the disordered phase loses metastability."""
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


@dataclass(frozen=True)
class Branches:
    """The S-curve as splines of a running index, with its turning points."""

    curve: SaddlePoints
    turns: Float[np.ndarray, " turn"]
    """Running indices at which the load has an extremum."""

    def spline(self, values: Float[Array | np.ndarray, " point"]) -> BSpline:
        return make_interp_spline(np.arange(len(values)), np.asarray(values), k=5)

    def at(self, index: float) -> tuple[float, float, float]:
        """(copy mass, participation, effective action) at a running index."""
        curve = self.curve
        values = (curve.copy_mass, curve.participation, curve.effective_action)
        m, q, free = (float(self.spline(value)(index)) for value in values)
        return m, q, free


def branches(posterior: CopyPosterior, resolution: float = 1.0) -> Branches:
    """The S-curve of a softmax posterior and its turning points. Raises as `softmax.s_curve`."""
    curve = s_curve(posterior, resolution)
    index = np.arange(len(curve.load))
    slope = make_interp_spline(index, curve.load, k=5).derivative()
    sampled = slope(fine := np.linspace(0, index[-1], 20 * len(index)))
    changes = np.flatnonzero(np.diff(np.sign(sampled)))
    turns = [root_scalar(slope, bracket=(fine[i], fine[i + 1])).root for i in changes]
    return Branches(curve, np.array(turns))


def _softmax(posterior: CopyPosterior, resolution: float) -> Transition:
    lines = branches(posterior, resolution)
    load, action = lines.spline(lines.curve.load), lines.spline(lines.curve.effective_action)
    last = float(len(lines.curve.load) - 1)
    if len(lines.turns) < 2:
        growth = lines.spline(lines.curve.copy_mass).derivative()
        index = np.linspace(0, last, 4000)
        steepest = float(load(index[np.argmax(growth(index) / load.derivative()(index))]))
        return Transition(order="crossover", steepest_load=steepest)
    top, bottom = lines.turns[0], lines.turns[1]

    def index_at(value: float, start: float, end: float) -> float:
        return root_scalar(lambda i: float(load(i)) - value, bracket=(start, end), xtol=1e-13, rtol=1e-14).root

    def difference(value: float) -> float:
        """F of the copy branch minus F of the disordered branch."""
        return float(action(index_at(value, bottom, last)) - action(index_at(value, 0, top)))

    spinodal_low, spinodal_high = float(load(bottom)), float(load(top))
    margin = 1e-9 * (spinodal_high - spinodal_low)
    bracket = spinodal_low + margin, spinodal_high - margin
    if not difference(bracket[0]) > 0 > difference(bracket[1]):
        raise ArithmeticError(f"the branches near load {spinodal_low:.4g} to {spinodal_high:.4g} are not resolved")
    critical = root_scalar(difference, bracket=bracket, xtol=1e-12 * spinodal_high).root
    m_disordered, q_disordered, free = lines.at(index_at(critical, 0, top))
    m_middle, _, free_middle = lines.at(index_at(critical, top, bottom))
    m_copy, q_copy, _ = lines.at(index_at(critical, bottom, last))
    return Transition(
        order="first",
        critical_load=critical,
        critical_data=posterior.num_sequences(critical),
        spinodal_low=spinodal_low,
        spinodal_high=spinodal_high,
        barrier=free_middle - free,
        copy_mass_disordered=m_disordered,
        copy_mass_copy=m_copy,
        participation_disordered=q_disordered,
        participation_copy=q_copy,
        copy_mass_barrier=m_middle,
        steepest_load=critical,
    )


def transition(posterior: CopyPosterior) -> Transition:
    """The transition of a posterior of the copy task, for i.i.d. uniform tokens.

    Only the fields of `posterior` are read (task, attention, prior, value scale, noise), never its densities: a data
    set's posterior is placed by the same theory as the population's.

    Raises
    ------
    InvalidInput: there is no theory for this attention kind, prior or task.
    ArithmeticError: no solution was found.
    """
    if posterior.attention == "linear":
        critical = critical_load(posterior)
        return Transition(
            order="second",
            critical_load=critical,
            critical_load_error=0.0,
            critical_data=posterior.num_sequences(critical),
            steepest_load=critical,
        )
    fine, coarse = _softmax(posterior, 1.0), _softmax(posterior, COARSE)
    if fine.critical_load is None or coarse.critical_load is None or fine.barrier is None or coarse.barrier is None:
        return fine
    return replace(
        fine,
        critical_load_error=abs(fine.critical_load - coarse.critical_load),
        barrier_error=abs(fine.barrier - coarse.barrier),
    )
