"""How much data is missing until the copy head appears?

Two thresholds matter and they differ. The posterior switches at coexistence; training by Adam has no entropy and
follows the zero-temperature landscape (theory, section 8). Both come from the theory alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bayes_attn.errors import require_positive
from bayes_attn.posterior import CopyPosterior, Population
from bayes_attn.priors import IidLogits
from bayes_attn.theory import Landscape, Transition, landscape, specification, transitions

Phase = Literal["below", "metastable", "coexistence", "above"]
COEXISTENCE = 1.0
"""Free energies closer than this, in kT, count as coexistence: the rarer phase still has a weight of some 0.27 or more
(fluctuation factors aside)."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where a data amount stands, in sequences at the posterior's noise; None where an entry does not apply."""

    phase: Phase
    """below: the disordered phase alone; metastable: both phases, one of them only for a while; coexistence: both with
    comparable weight; above: the copy phase alone. Without a first-order transition: below or above its centre."""
    order: Literal["first", "second", "crossover"]
    load: float
    data: float
    centre_data: float
    """Where the copy mass rises: at coexistence, at the critical point, or steepest in a crossover."""
    critical_data: float | None
    critical_data_error: float | None
    """Numerical, of the theory."""
    spinodal_low_data: float | None
    spinodal_low_data_error: float | None
    """Numerical; likewise for the next."""
    spinodal_high_data: float | None
    spinodal_high_data_error: float | None
    data_to_coexistence: float | None
    """Sequences still missing until the posterior prefers the copy phase; 0 beyond it."""
    data_to_lose_metastability: float | None
    """Sequences still missing until the disordered phase cannot last; 0 beyond it."""
    map_spinodal_low_data: float | None
    """Adam that starts in the copy pattern keeps it from here on."""
    map_critical_data: float | None
    """Both minima of Adam's landscape are equally deep; for linear attention, where m leaves 0."""
    map_spinodal_high_data: float | None
    """Adam from scratch finds the copy pattern from here on."""
    map_relative_error: float
    """Numerical, of the three data amounts of Adam's landscape."""
    linear: "Plan | None" = None
    """What linear attention would do with the same data; None if this is linear attention, or that has no theory."""


def plan(posterior: CopyPosterior, data: float) -> Plan:
    """Place a data amount in the phase diagram of a copy task, for i.i.d. tokens with the task's frequencies.

    Parameters
    ----------
    posterior: what is trained; only its fields are read.
    data: sequences at hand, positive.

    Raises
    ------
    InvalidInput: `data` is not positive, or there is no theory for the posterior.
    ArithmeticError: the theory's equations could not be solved.
    """
    return plans([posterior], [data])[0]


def plans(posteriors: Sequence[CopyPosterior], data: Sequence[float]) -> list[Plan]:
    """`plan` for many settings, solved together. Raises as `plan`, for the first setting that fails."""
    for amount in data:
        require_positive("plan", "data", amount)
    compared = [_linear(posterior) for posterior in posteriors]
    found = transitions([*posteriors, *(linear for linear in compared if linear is not None)])
    own, rest = found[: len(posteriors)], iter(found[len(posteriors) :])
    placed = []
    for posterior, amount, one, linear in zip(posteriors, data, own, compared, strict=True):
        beside = None if linear is None else _place(linear, float(amount), next(rest), None)
        placed.append(_place(posterior, float(amount), one, beside))
    return placed


def _linear(posterior: CopyPosterior) -> Population | None:
    """Linear attention for the same task; None if the posterior is that, or where linear attention has no theory."""
    if posterior.attention == "linear" or posterior.task.causal or not isinstance(posterior.prior, IidLogits):
        return None
    return Population(posterior.task, "linear", posterior.logit_scale, posterior.value_scale, posterior.noise)


def _place(posterior: CopyPosterior, data: float, found: Transition, linear: Plan | None) -> Plan:
    # A causal task has no landscape: its rows have no common copy pattern.
    trained = Landscape() if posterior.task.causal else landscape(posterior)
    load = posterior.load(data)

    def sequences(value: float | None) -> float | None:
        return None if value is None else posterior.num_sequences(value)

    def missing(value: float | None) -> float | None:
        return None if value is None else max(0.0, posterior.num_sequences(value) - data)

    return Plan(
        phase=_phase(posterior, found, load),
        order=found.order,
        load=load,
        data=data,
        centre_data=posterior.num_sequences(found.steepest_load),
        critical_data=found.critical_data,
        critical_data_error=sequences(found.critical_load_error),
        spinodal_low_data=sequences(found.spinodal_low),
        spinodal_low_data_error=sequences(found.spinodal_low_error),
        spinodal_high_data=sequences(found.spinodal_high),
        spinodal_high_data_error=sequences(found.spinodal_high_error),
        data_to_coexistence=missing(found.critical_load),
        data_to_lose_metastability=missing(found.spinodal_high),
        map_spinodal_low_data=sequences(trained.spinodal_low),
        map_critical_data=sequences(trained.critical_load),
        map_spinodal_high_data=sequences(trained.spinodal_high),
        map_relative_error=trained.relative_error,
        linear=linear,
    )


def _phase(posterior: CopyPosterior, found: Transition, load: float) -> Phase:
    low, critical, high = found.spinodal_low, found.critical_load, found.spinodal_high
    if low is None or critical is None or high is None:
        return "below" if load < found.steepest_load else "above"
    if load < low:
        return "below"
    if load > high:
        return "above"
    # To first order in the distance to coexistence the phases keep their order parameters; then their entropies cancel
    # the actions at coexistence, and the difference of their free energies is that of the actions alone.
    action = specification(posterior, posterior.attention).action
    m, q = (
        np.array([found.copy_mass_disordered, found.copy_mass_copy], dtype=float),
        np.array([found.participation_disordered, found.participation_copy], dtype=float),
    )
    growth = np.asarray(action.energy(load, m, q)) - np.asarray(action.energy(critical, m, q))
    return "coexistence" if abs(growth[1] - growth[0]) < COEXISTENCE else "metastable"
