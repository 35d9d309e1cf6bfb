"""A point in control space, the density there, and paths of such points."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from bayes_attn.errors import InvalidInput, require
from bayes_attn.posterior import Posterior


class Controls(NamedTuple):
    """Where in (inverse temperature, load, field) a density is taken; arrays of one shape make a ladder of rungs."""

    inverse_temperature: Float[Array | np.ndarray, "*rung"]
    """beta: multiplies the log-likelihood only; the prior is never tempered."""
    load: Float[Array | np.ndarray, "*rung"]
    """Data amount, at least 0."""
    field: Float[Array | np.ndarray, "*rung"]
    """h: adds size * h * (first order parameter)."""
    lowest: Float[Array | np.ndarray, "*rung"] | None = None
    """Least value of the first order parameter, below which the density is 0: with `highest`, a window that holds a
    replica in one phase. None: no window."""
    highest: Float[Array | np.ndarray, "*rung"] | None = None


def log_density(posterior: Posterior, params: PyTree, controls: Controls) -> Float[Array, ""]:
    """log_prior + beta * log_likelihood(load) + size * field * (first order parameter), in nats.

    Outside the window it is -inf.
    """
    likelihood = controls.inverse_temperature * posterior.log_likelihood(params, jnp.asarray(controls.load))
    tempered = jnp.where(controls.inverse_temperature == 0, 0.0, likelihood)
    coupled = posterior.order_parameters(params)[0]
    total = posterior.log_prior(params) + tempered + posterior.size * controls.field * coupled
    for outside in (
        controls.lowest is not None and coupled < controls.lowest,
        controls.highest is not None and coupled > controls.highest,
    ):
        total = jnp.where(outside, -jnp.inf, total)
    return total


def conditioned(posterior: Posterior, ladder: Controls) -> tuple[Posterior, int | None]:
    """The posterior at each rung's load, and the axis to map it over (None if it is one for all).

    A posterior may offer `at_load(load)`, which returns a posterior with everything that depends on the load alone
    computed once; here this is done for a whole ladder, outside all loops.
    """
    at_load = getattr(posterior, "at_load", None)
    return (posterior, None) if at_load is None else (jax.vmap(at_load)(ladder.load), 0)


def is_prior(controls: Controls) -> np.ndarray:
    """Where the density is the prior itself, so that an exact draw can replace exploration."""
    known = (np.asarray(controls.inverse_temperature) == 0) | (np.asarray(controls.load) == 0)
    prior = known & (np.asarray(controls.field) == 0)
    if controls.lowest is not None:
        prior &= np.isneginf(controls.lowest)
    if controls.highest is not None:
        prior &= np.isposinf(controls.highest)
    return prior


def load_ladder(loads: list[float] | np.ndarray) -> Controls:
    """Rungs along the data amount at inverse temperature 1 and no field.

    Raises
    ------
    InvalidInput: no load, a negative or non-finite one, or loads that do not increase.
    """
    array = np.asarray(loads, dtype=float)
    good = array.ndim == 1 and len(array) >= 1 and np.all(np.isfinite(array)) and array[0] >= 0
    if not good or np.any(np.diff(array) <= 0):
        raise InvalidInput(f"load_ladder: `loads` must be increasing numbers of at least 0, got {loads}.")
    return Controls(jnp.ones(len(array)), jnp.asarray(array), jnp.zeros(len(array)))


@dataclass(frozen=True)
class Path:
    """A curve in control space, to be cut into rungs: legs, each a polyline, whose ends are rungs always.

    Parameters
    ----------
    legs: controls with arrays of shape (vertex,), two vertices or more; each leg begins where the one before it ended,
        but may have another window. Where legs meet the wider window holds.

    Raises
    ------
    InvalidInput: a leg has fewer than two vertices, legs do not meet, or a control is out of its range.
    """

    legs: tuple[Controls, ...]

    def __post_init__(self) -> None:
        require(len(self.legs) > 0, "Path", "legs", "must hold at least one leg", self.legs)
        whole = tuple(_broadcast(leg) for leg in self.legs)
        object.__setattr__(self, "legs", whole)
        for number, leg in enumerate(whole):
            check_controls("Path", leg)
            rule = f"must have two vertices or more (leg {number})"
            require(len(leg.load) >= 2, "Path", "legs", rule, len(leg.load))
        for number in range(1, len(whole)):
            end, start = ([float(c[i]) for c in whole[n][:3]] for n, i in ((number - 1, -1), (number, 0)))
            rule = f"must meet (leg {number} begins where leg {number - 1} ends, at {end})"
            require(np.allclose(end, start), "Path", "legs", rule, start)

    def rungs(self, positions: Float[np.ndarray, " rung"]) -> Controls:
        """The controls at positions from 0 to the number of legs; leg i lies between i and i + 1."""
        return jax.tree.map(lambda *values: jnp.asarray(values), *[self._at(float(p)) for p in positions])

    def _at(self, position: float) -> Controls:
        leg = min(int(position), len(self.legs) - 1)
        at = self._on_leg(leg, position - leg)
        if leg > 0 and position == leg:
            before = self._on_leg(leg - 1, 1.0)
            at = at._replace(
                lowest=np.minimum(at.lowest, before.lowest), highest=np.maximum(at.highest, before.highest)
            )
        return at

    def _on_leg(self, leg: int, fraction: float) -> Controls:
        vertices = np.linspace(0, 1, len(self.legs[leg].load))
        values = {name: np.interp(fraction, vertices, getattr(self.legs[leg], name)) for name in Controls._fields[:3]}
        # A window holds for the whole leg.
        lowest, highest = self.legs[leg][3:]
        assert lowest is not None
        assert highest is not None
        return Controls(**values, lowest=lowest[0], highest=highest[0])


def _broadcast(leg: Controls) -> Controls:
    lowest = -np.inf if leg.lowest is None else leg.lowest
    highest = np.inf if leg.highest is None else leg.highest
    arrays = np.broadcast_arrays(*(np.asarray(c, dtype=float) for c in (*leg[:3], lowest, highest)))
    return Controls(*(np.atleast_1d(array) for array in arrays))


def check_controls(owner: str, controls: Controls) -> None:
    """Refuse controls of unlike shapes, that are not finite, or out of range."""
    shapes = {np.shape(control) for control in controls if control is not None}
    require(len(shapes) == 1 and len(next(iter(shapes))) == 1, owner, "controls", "must be arrays of one axis", shapes)
    for name, least in (("inverse_temperature", 0.0), ("load", 0.0), ("field", -np.inf)):
        values = np.asarray(getattr(controls, name))
        good = np.isfinite(values) & (values >= least)
        rule = "must be finite numbers" + (" of at least 0" if least == 0 else "")
        require(bool(np.all(good)), owner, name, rule, values[~good].tolist())
    if controls.lowest is not None and controls.highest is not None:
        empty = np.asarray(controls.lowest) >= np.asarray(controls.highest)
        require(
            not np.any(empty), owner, "lowest", "must lie below `highest`", np.asarray(controls.lowest)[empty].tolist()
        )


def temperature_path(load: float) -> Path:
    """From the prior to the posterior at `load`, by the inverse temperature."""
    return Path((Controls(np.array([0.0, 1.0]), np.full(2, load), np.zeros(2)),))


def load_path(loads: Sequence[float] | np.ndarray) -> Path:
    """Along the data amount; every load given is a rung."""
    ladder = load_ladder(np.asarray(loads))
    return Path(tuple(jax.tree.map(lambda c, i=i: np.asarray(c[i : i + 2]), ladder) for i in range(len(loads) - 1)))


def field_path(load: float, fields: Sequence[float] | np.ndarray) -> Path:
    """Along the field at one data amount; every field given is a rung."""
    pairs = itertools.pairwise(fields)
    return Path(tuple(Controls(np.ones(2), np.full(2, load), np.array(pair, dtype=float)) for pair in pairs))


def four_legs(load: float, field: float, cut: float) -> Path:
    """The way from the disordered to the copy phase at one load, round the critical end point (theory, section 5).

        (load, 0) -> (0, 0) -> (0, field) -> (load, field) -> (load, 0)

    Swaps alone conserve how many replicas of the first and last leg are in the wrong phase, which only nucleation could
    change. So the first leg is held below the `cut` of the first order parameter and the last one above it: the ends
    are the two phases of one posterior, and the ratio of their normalisations is the ratio of the phases' weights.
    """
    low, high = np.array([load, 0.0]), np.array([0.0, load])
    return Path(
        (
            Controls(np.ones(2), low, np.zeros(2), highest=np.full(2, cut)),
            Controls(np.ones(2), np.zeros(2), np.array([0.0, field])),
            Controls(np.ones(2), high, np.full(2, field)),
            Controls(np.ones(2), np.full(2, load), np.array([field, 0.0]), lowest=np.full(2, cut)),
        )
    )


def coexistence_path(loads: Float[np.ndarray, " vertex"], fields: Float[np.ndarray, " vertex"]) -> Path:
    """Down a line of coexistence, from the target at its first vertex to beyond its critical end point at the last.

    Along that line both phases keep comparable weights while the barrier between them falls to nothing, so replicas
    change phase at the far end, by local moves, and bring it home: no phase has to nucleate against a barrier. By
    Clausius and Clapeyron's relation the force along the line has the same mean in both phases, so that a swap does not
    favour one of them.
    """
    return Path((Controls(np.ones(len(loads)), np.asarray(loads), np.asarray(fields)),))


def detour(ladder: Sequence[float] | np.ndarray, at: float, line: Path) -> tuple[Path, list[int]]:
    """Along the data amount, with a detour down the coexistence line and back where the load is `at`.

    Returns the path, and at which of its joints (legs' ends) the loads of the ladder lie.
    """
    loads = [float(load) for load in ladder]
    require(at in loads[:-1], "detour", "at", "must be a load of the ladder, not the last", at)
    before, after = loads[: loads.index(at) + 1], loads[loads.index(at) :]
    (out,) = line.legs
    back = jax.tree.map(lambda control: control[::-1], out)
    legs = (load_path(before).legs if len(before) > 1 else ()) + (out, back) + load_path(after).legs
    joints = [*range(len(before)), *range(len(before) + 2, len(legs) + 1)]
    return Path(legs), joints
