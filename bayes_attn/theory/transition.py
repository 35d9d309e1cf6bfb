"""Where the transition lies and of which order it is (theory, sections 4 and 6).

Softmax: a curve of saddle points along which a control (the load at a fixed field, or the field at a fixed load) has a
maximum and then a minimum where the transition is first-order: these are the spinodals. The phases coexist where the
effective action is equal on the two outer branches, and the barrier is its value on the middle branch above them.
Without such a fold the head appears in a crossover.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bayes_attn.errors import require
from bayes_attn.posterior import CopyPosterior
from bayes_attn.priors import RelativeBias
from bayes_attn.theory import shared_row
from bayes_attn.theory.action import specification
from bayes_attn.theory.coexistence import Coexistence, coexistence, folds, spline
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

    @property
    def borders(self) -> tuple[float, float] | None:
        """Copy masses halfway from each phase to the barrier: below the first and above the second is one phase."""
        low, middle, high = self.copy_mass_disordered, self.copy_mass_barrier, self.copy_mass_copy
        if low is None or middle is None or high is None:
            return None
        return (low + middle) / 2, (middle + high) / 2


def _along_load(posterior: CopyPosterior, curve: SaddlePoints) -> Transition:
    found = coexistence(folds(curve, curve.load), float(specification(posterior, "softmax").action.rows))
    if found is not None:
        return _transition(posterior, found, found.critical)
    load, growth = spline(curve.load), spline(curve.copy_mass).derivative()
    index = np.linspace(0, len(curve.load) - 1, 40_000)
    return _transition(posterior, None, float(load(index[np.argmax(growth(index) / load.derivative()(index))])))


def _transition(posterior: CopyPosterior, found: Coexistence | None, steepest_load: float) -> Transition:
    if found is None:
        return Transition(order="crossover", steepest_load=steepest_load)
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
        steepest_load=steepest_load,
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
            fine, coarse = (
                _transition(posterior, *shared_row.find(posterior, field, resolution)) for resolution in (1.0, COARSE)
            )
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
