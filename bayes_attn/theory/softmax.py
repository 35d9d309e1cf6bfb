"""Softmax attention: curves of saddle points and the density of the copy mass (theory, sections 4b and 5).

Under the prior the rows of a softmax attention matrix are independent, so the effective action of (m, q) is
F = U + R I, with I the Legendre transform of one row's cumulant function (`row_law`) and R the number of independent
rows. Two curves are followed, each by Newton's method along a coordinate in which it has no folds:

* `s_curve`, at a fixed field: every saddle point, from load 0 into the copy phase;
* `profiles`, at fixed loads: F minimised over q at every m. Its slope is the field that makes m stationary, so it also
  holds the whole line of transitions in the (load, field) plane.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.interpolate import make_interp_spline

from bayes_attn.errors import require
from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.action import Action, Density, Specification, specification
from bayes_attn.theory.row_law import LARGEST_FIELD, RowLaw, RowMoments, row_law

LARGEST_ERROR = 1e-3
"""How far the row law may be off where its value is known exactly: m = 1/L at t = u = 0."""
SCOUT_STEP, LEAST_SCOUTS, MOST_SCOUTS = 0.12, 60, 260
"""Steps of log((t - h) m) in the first pass along the S-curve."""
CURVE_POINTS = 224
BATCH = 32
"""Settings solved together at most."""
PROFILE_POINTS = 288
LOG_NEGLIGIBLE = 30.0
LEAST_COPY_MASS = 0.04
"""Where profiles begin, in units of m without data."""
FEWEST_POINTS = 24
"""Points of a profile on which a density may rest."""


class SaddlePoints(NamedTuple):
    """Points on a curve of saddle points; all arrays of one shape."""

    conjugate_copy_mass: Float[Array | np.ndarray, "*point"]
    """t."""
    conjugate_participation: Float[Array | np.ndarray, "*point"]
    """u."""
    load: Float[Array | np.ndarray, "*point"]
    field: Float[Array | np.ndarray, "*point"]
    """h that makes the point stationary."""
    copy_mass: Float[Array | np.ndarray, "*point"]
    participation: Float[Array | np.ndarray, "*point"]
    effective_action: Float[Array | np.ndarray, "*point"]
    """F = U + R I, in kT, without the term -R h m of the field."""
    log_prefactor: Float[Array | np.ndarray, "*point"]
    """Logarithm of the Gaussian fluctuation factor of p(m)."""


def _newton(
    law: RowLaw,
    fields: Callable[[Array], Array],
    residual: Callable[[Array, Array], Array],
    guess: Float[Array, " unknown"],
) -> tuple[Float[Array, " unknown"], Float[Array, "unknown unknown"], RowMoments]:
    """Root of residual(unknown, (m, q)) = 0 with (m, q) the row law's mean at fields(unknown); its inverse Jacobian.

    NaN where Newton's method fails.
    """

    def step(state: tuple[Array, Array, RowMoments, Array, Array]) -> tuple[Array, Array, RowMoments, Array, Array]:
        unknown, _, _, _, iteration = state
        moments = law.moments(*fields(unknown))

        def linearised(x: Array) -> Array:
            return residual(x, moments.mean + moments.covariance @ (fields(x) - fields(unknown)))

        value, inverse = residual(unknown, moments.mean), jnp.linalg.inv(jax.jacfwd(linearised)(unknown))
        return unknown - jnp.clip(inverse @ value, *limits(unknown)), inverse, moments, value, iteration + 1

    def limits(unknown: Array) -> tuple[Array, Array]:
        reach = 0.6 * (1 + jnp.abs(unknown))
        return -reach, reach

    def unfinished(state: tuple[Array, Array, RowMoments, Array, Array]) -> Array:
        *_, value, iteration = state
        return (jnp.max(jnp.abs(value)) > 1e-11) & (iteration < 30)

    size = len(guess)
    nothing = RowMoments(jnp.zeros(()), jnp.zeros(2), jnp.zeros((2, 2)))
    first = (guess, jnp.eye(size), nothing, jnp.full(size, jnp.inf), jnp.zeros((), int))
    unknown, inverse, moments, value, _ = jax.lax.while_loop(unfinished, step, first)
    return jnp.where(jnp.max(jnp.abs(value)) < 1e-7, unknown, jnp.nan), inverse, moments


def _point(action: Action, fields: Array, load: Array, field: Array, moments: RowMoments) -> SaddlePoints:
    (t, u), (m, q) = fields, moments.mean
    free = action.energy(load, m, q) + action.rows * (t * m + u * q - moments.cumulant)
    curvature = jax.grad(lambda x: -action.conjugates(load, m, x)[1])(q)
    stiffness = jnp.linalg.inv(moments.covariance)[1, 1] + curvature
    prefactor = -0.5 * (jnp.log(jnp.linalg.det(moments.covariance)) + jnp.log(stiffness))
    return SaddlePoints(t, u, load, field, m, q, free, prefactor)


class _Stop(NamedTuple):
    """Where the first pass along the S-curve is, and whether it has seen enough."""

    unknown: Float[Array, "3"]
    tangent: Float[Array, "3"]
    coordinate: Float[Array, ""]
    load: Float[Array, ""]
    highest: Float[Array, ""]
    """Largest load before any decrease."""
    folded: Array
    """Whether the load has ever decreased."""
    done: Array


def _s_curve_equations(
    action: Action, field: Array, coordinate: Array
) -> tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]:
    """Unknowns (log(t - h), log(-u), log(load)), along the coordinate log(t - h) + log(m)."""

    def fields(x: Array) -> Array:
        return jnp.stack([field + jnp.exp(x[0]), -jnp.exp(x[1])])

    def residual(x: Array, mean: Array) -> Array:
        drive, u = action.conjugates(jnp.exp(x[2]), mean[0], mean[1])
        return jnp.stack([x[0] + jnp.log(mean[0]) - coordinate, x[0] - jnp.log(drive), x[1] - jnp.log(-u)])

    return fields, residual


@eqx.filter_jit
def _scout(law: RowLaw, action: Action, field: Array) -> tuple[SaddlePoints, Array, Array]:
    """The S-curve in even steps of its coordinate, until well inside the copy phase; unknowns and coordinates too."""
    m, q = law.moments(field, jnp.zeros(())).mean
    # So small a load that the order parameters are those of the prior.
    tiny = 1e-4
    load = 0.05 * tiny / jnp.sqrt(action.conjugates(jnp.asarray(tiny), m, q)[0])
    drive, u = action.conjugates(load, m, q)
    coordinate = jnp.log(drive) + jnp.log(m)
    start = jnp.stack([jnp.log(drive), jnp.log(-u), jnp.log(load)])

    def advance(last: _Stop, _: None) -> tuple[_Stop, tuple[SaddlePoints, Array, Array]]:
        at = last.coordinate + jnp.where(last.done, 0.0, SCOUT_STEP)
        fields, residual = _s_curve_equations(action, field, at)
        unknown, inverse, moments = _newton(law, fields, residual, last.unknown + last.tangent * SCOUT_STEP)
        unknown = jnp.where(last.done, last.unknown, unknown)
        load = jnp.exp(unknown[2])
        folded = last.folded | (load < last.load)
        far = at > coordinate + LEAST_SCOUTS * SCOUT_STEP
        enough = jnp.where(folded, load > 1.2 * last.highest, (moments.mean[0] > 0.65) & far)
        highest = jnp.where(folded, last.highest, jnp.maximum(last.highest, load))
        stop = _Stop(unknown, inverse[:, 0], at, load, highest, folded, last.done | enough)
        return stop, (_point(action, fields(unknown), load, field, moments), unknown, at)

    no = jnp.zeros((), bool)
    # d(unknown)/d(coordinate) at small load: the load goes as the root of the drive, u as the load.
    tangent = jnp.array([1.0, 0.5, 0.5])
    first = _Stop(start, tangent, coordinate - SCOUT_STEP, load * 0, load * 0, no, no)
    _, (points, unknowns, coordinates) = jax.lax.scan(advance, first, None, MOST_SCOUTS)
    return points, unknowns, coordinates


@eqx.filter_jit
def _refine(
    law: RowLaw, action: Action, field: Array, guesses: Float[Array, "point 3"], coordinates: Float[Array, " point"]
) -> SaddlePoints:
    """The S-curve at given coordinates, each point from its own guess."""

    def solve(guess: Array, coordinate: Array) -> SaddlePoints:
        fields, residual = _s_curve_equations(action, field, coordinate)
        unknown, _, moments = _newton(law, fields, residual, guess)
        return _point(action, fields(unknown), jnp.exp(unknown[2]), field, moments)

    return jax.lax.map(lambda pair: solve(*pair), (guesses, coordinates))


def resolved(posterior: CopyPosterior, resolution: float = 1.0, shared: bool = False) -> tuple[Specification, RowLaw]:
    """A softmax posterior as the theory sees it, and its row law; refused where that misses m = 1/L without data.

    Raises
    ------
    InvalidInput: there is no theory for the posterior, or its rows are shared where independent ones are asked for, or
        the other way round.
    ArithmeticError: the law of a row is not resolved.
    """
    spec = specification(posterior, "softmax")
    rule = "must be RelativeBias for the law of a shared row" if shared else "must be IidLogits for saddle points"
    require(spec.shared == shared, "theory", "prior", rule, type(posterior.prior).__name__)
    law = row_law(spec.length, spec.standard_deviation, resolution, spec.causal)
    with jax.enable_x64(True):
        mean = _moments(law, jnp.zeros(()), jnp.zeros(())).mean
    exact = float(np.mean(1 / np.arange(2, spec.length + 1))) if spec.causal else 1 / spec.length
    error = abs(float(mean[0]) / exact - 1)
    if not error < LARGEST_ERROR:
        what = f"logit_scale = {spec.standard_deviation:g} at length = {spec.length}"
        raise ArithmeticError(f"the law of a row is not resolved for {what} (off by {error:.1g})")
    return spec, law


@eqx.filter_jit
def _moments(law: RowLaw, t: Float[Array, ""], u: Float[Array, ""]) -> RowMoments:
    return law.moments(t, u)


def s_curve(posterior: CopyPosterior, resolution: float = 1.0, field: float = 0.0) -> SaddlePoints:
    """The whole curve of saddle points (m, q, load) at a field, from nearly load 0 to well inside the copy phase.

    It has no folds along log(t - h) + log(m); where the transition is first-order the load has a maximum along it (end
    of the disordered phase) and then a minimum (end of the copy phase). Numpy arrays in float64; dimensionless, F in
    kT. Theory, section 4b.

    Raises
    ------
    InvalidInput: there is no theory for the posterior.
    ArithmeticError: the law of a row is not resolved, or no solution was found.
    """
    return s_curves([posterior], resolution, [field])[0]


def s_curves(
    posteriors: Sequence[CopyPosterior], resolution: float = 1.0, fields: Sequence[float] | None = None
) -> list[SaddlePoints]:
    """`s_curve` of many settings (and as many fields), solved together by `jax.vmap`. Raises as `s_curve`."""
    fields = [0.0] * len(posteriors) if fields is None else fields
    settings = [
        (resolved(posterior, resolution), jnp.asarray(float(at)))
        for posterior, at in zip(posteriors, fields, strict=True)
    ]
    kinds = max((len(spec.action.frequency) for (spec, _), _ in settings), default=0)
    curves: list[SaddlePoints] = []
    with jax.enable_x64(True):
        for batch in _batches([(law, _padded(spec.action, kinds), at) for (spec, law), at in settings]):
            law, action, at = jax.tree.map(lambda *leaves: np.stack(leaves), *_filled(batch))
            curves += _s_curves(law, action, at, int(CURVE_POINTS * max(resolution, 1.0)))[: len(batch)]
    return curves


def _filled[Item](items: list[Item]) -> list[Item]:
    """The items and copies of the last one, up to a power of two: few shapes to compile for."""
    return items + items[-1:] * (2 ** math.ceil(math.log2(len(items))) - len(items))


def _padded(action: Action, kinds: int) -> Action:
    """The same action with unused kinds of tokens, so that actions can be stacked."""
    missing = kinds - len(action.frequency)
    frequency = np.append(action.frequency, np.full(missing, 0.5))
    return Action(action.rows, action.value_scale, frequency, np.append(action.multiplicity, np.zeros(missing)))


def _batches(settings: list[tuple[RowLaw, Action, Array]]) -> Iterator[list[tuple[RowLaw, Action, Array]]]:
    """Neighbours with arrays of equal shape, at most BATCH of them."""
    start = 0
    shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(setting)] for setting in settings]
    for end in range(1, len(settings) + 1):
        if end == len(settings) or shapes[end] != shapes[start] or end - start == BATCH:
            yield settings[start:end]
            start = end


def _s_curves(
    law: RowLaw, action: Action, field: Float[Array | np.ndarray, " setting"], count: int
) -> list[SaddlePoints]:
    scouts, unknowns, coordinates = jax.tree.map(np.asarray, eqx.filter_vmap(_scout)(law, action, field))
    guesses = []
    for number, (found, at) in enumerate(zip(unknowns, coordinates, strict=True)):
        last = int(np.argmax(np.diff(at) == 0)) or len(at) - 1
        lost = ~np.all(np.isfinite(found[: last + 1]), axis=1)
        if lost.any():
            known = max(int(np.argmax(lost)) - 1, 0)
            why = f"beyond t = {scouts.conjugate_copy_mass[number][known]:.3g}"
            if -scouts.conjugate_participation[number][known] > 0.3 * LARGEST_FIELD:
                why += f"; V (V - 1) / L is too large for the tables of a row, which end at u = -{LARGEST_FIELD:.0e}"
            raise ArithmeticError(f"no saddle point was found {why}")
        if last == len(at) - 1:
            reached = scouts.conjugate_copy_mass[number][last]
            raise ArithmeticError(f"the copy phase was not reached by t = {reached:.3g}")
        guesses.append(_even(found[: last + 1], at[: last + 1], count))
    guessed = jnp.asarray(np.stack(guesses))
    points = eqx.filter_vmap(_refine)(law, action, field, guessed[..., :3], guessed[..., 3])
    points = jax.tree.map(np.asarray, points)
    curves = [SaddlePoints(*(values[i] for values in points)) for i in range(len(guesses))]
    for curve in curves:
        if not np.all(np.isfinite(curve.load)):
            raise ArithmeticError(f"no saddle point was found near load {np.nanmax(curve.load):.3g}")
    return curves


def _even(
    unknowns: Float[np.ndarray, "step 3"], coordinates: Float[np.ndarray, " step"], count: int
) -> Float[np.ndarray, "point 4"]:
    """Guesses and coordinates evenly spaced along the curve: there splines of it are accurate.

    Along the coordinate itself some stretches pass in a flash.
    """
    log_copy_mass = coordinates - unknowns[:, 0]
    curve = np.stack([0.5 * unknowns[:, 0], unknowns[:, 2], log_copy_mass])
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(curve), axis=0))])
    return make_interp_spline(length, np.column_stack([unknowns, coordinates]), k=3)(np.linspace(0, length[-1], count))


@eqx.filter_jit
def _profile(
    law: RowLaw, action: Action, log_odds: Float[Array, " point"], load: Array, start: Float[Array, "2"]
) -> SaddlePoints:
    """Unknowns (t, log(-u)) along the log-odds of m, at one load; `start` is a guess for the first point."""

    def fields(x: Array) -> Array:
        return jnp.stack([x[0], -jnp.exp(x[1])])

    def advance(last: tuple[Array, Array, Array], at: Array) -> tuple[tuple[Array, Array, Array], SaddlePoints]:
        unknown, tangent, before = last

        def residual(x: Array, mean: Array) -> Array:
            u = action.conjugates(load, mean[0], mean[1])[1]
            return jnp.stack([jnp.log(mean[0]) - jnp.log1p(-mean[0]) - at, x[1] - jnp.log(-u)])

        unknown, inverse, moments = _newton(law, fields, residual, unknown + tangent * (at - before))
        point_fields = fields(unknown)
        field = point_fields[0] - action.conjugates(load, moments.mean[0], moments.mean[1])[0]
        return (unknown, inverse[:, 0], at), _point(action, point_fields, load, field, moments)

    return jax.lax.scan(advance, (start, jnp.zeros(2), log_odds[0]), log_odds)[1]


@eqx.filter_jit
def _profiles(
    law: RowLaw, action: Action, upward: Float[Array, " above"], downward: Float[Array, " below"], loads: Array
) -> SaddlePoints:
    """Both marches from the typical m without data, joined in the order of m."""
    # A load of exactly 0 has u = 0, whose logarithm is not a number.
    small = jnp.maximum(loads, 1e-9)
    m, q = law.moments(jnp.zeros(()), jnp.zeros(())).mean
    starts = jax.vmap(lambda load: jnp.stack([0 * load, jnp.log(-action.conjugates(load, m, q)[1])]))(small)
    upper = jax.vmap(partial(_profile, law, action, upward))(small, starts)
    lower = jax.vmap(partial(_profile, law, action, downward))(small, starts)
    return jax.tree.map(lambda a, b: jnp.concatenate([b[:, :0:-1], a], axis=1), upper, lower)


def profiles(
    posterior: CopyPosterior, loads: Float[np.ndarray, " load"] | list[float], resolution: float = 1.0
) -> SaddlePoints:
    """F(m), minimised over q, at each load: arrays of shape (load, point), m increasing from 0.04/L to 0.9995.

    `field` is (1/R) dF/dm, the field under which m is stationary: where it decreases with m, two phases compete
    (theory, section 5). Points where Newton's method fails are NaN. Raises as `s_curve`.
    """
    spec, law = resolved(posterior, resolution)
    with jax.enable_x64(True):
        typical = float(_moments(law, jnp.zeros(()), jnp.zeros(())).mean[0])
        middle, count = np.log(typical / (1 - typical)), int(PROFILE_POINTS * resolution)
        upward = np.linspace(middle, np.log(0.9995 / 0.0005), count)
        downward = np.arange(middle, np.log(LEAST_COPY_MASS * typical), -0.06 / resolution)
        padded = jnp.asarray(_filled([float(load) for load in loads]))
        found = _profiles(law, spec.action, jnp.asarray(upward), jnp.asarray(downward), padded)
        return jax.tree.map(lambda values: np.asarray(values)[: len(loads)], found)


def densities(
    posterior: CopyPosterior, loads: Float[np.ndarray, " load"] | list[float], resolution: float = 1.0
) -> list[Density | None]:
    """p(m) at each load, at finite L, with the Gaussian fluctuation factor beyond the saddle (theory, section 4b).

        p(m) ~ exp(-F(m)) / sqrt(det Cov * (d^2 (I + U/R) / dq^2)),     F(m) = min over q of F(m, q).

    Relative corrections are of order 1/R. None where no curve of saddle points spans the density. Raises as `s_curve`.
    """
    curves = profiles(posterior, loads, resolution)
    found: list[Density | None] = []
    for i in range(len(loads)):
        curve = SaddlePoints(*(np.asarray(values[i]) for values in curves))
        inside = _alive(curve)
        if 0 < len(inside) < FEWEST_POINTS:
            curve = _zoomed(posterior, curve, inside, resolution)
        found.append(_density(curve))
    return found


def log_densities(
    posterior: CopyPosterior, loads: Float[np.ndarray, " load"]
) -> list[tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]]:
    """(m, log p(m)) at each load wherever it is known, also where it is negligible; up to a constant."""
    return log_densities_along(profiles(posterior, loads))


def log_densities_along(
    curves: SaddlePoints,
) -> list[tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]]:
    """`log_densities` of `profiles` at hand."""
    found = []
    for i in range(len(curves.load)):
        curve = SaddlePoints(*(np.asarray(values[i]) for values in curves))
        log_density = _log_density(curve)
        known = np.isfinite(log_density) & np.isfinite(curve.copy_mass)
        found.append((np.asarray(curve.copy_mass)[known], log_density[known]))
    return found


def _log_density(curve: SaddlePoints) -> Float[np.ndarray, " point"]:
    """log p(m), 0 at its highest; NaN where unknown."""
    # Near m = 1 the covariance is nearly singular and its determinant may be lost to rounding.
    prefactor = np.asarray(curve.log_prefactor)
    index, known = np.arange(len(prefactor)), np.isfinite(prefactor)
    if not known.any():
        return np.full(len(prefactor), np.nan)
    log_density = np.interp(index, index[known], prefactor[known]) - np.asarray(curve.effective_action)
    return log_density - np.nanmax(log_density)


def _alive(curve: SaddlePoints) -> Int[np.ndarray, " index"]:
    """Where the density is not negligible."""
    return np.flatnonzero(_log_density(curve) > -LOG_NEGLIGIBLE)


def _zoomed(
    posterior: CopyPosterior, curve: SaddlePoints, inside: Int[np.ndarray, " index"], resolution: float
) -> SaddlePoints:
    """The profile again, with many points where the density is not negligible."""
    spec, law = resolved(posterior, resolution)
    copy_mass = np.asarray(curve.copy_mass)
    low, high = max(inside[0] - 1, 0), min(inside[-1] + 1, len(copy_mass) - 1)
    ends = np.log(copy_mass[[low, high]]) - np.log1p(-copy_mass[[low, high]])
    start = [curve.conjugate_copy_mass[low], np.log(-curve.conjugate_participation[low])]
    with jax.enable_x64(True):
        log_odds = jnp.linspace(ends[0], ends[1], PROFILE_POINTS)
        points = _profile(law, spec.action, log_odds, jnp.asarray(float(curve.load[low])), jnp.asarray(start))
        return jax.tree.map(np.asarray, points)


def _density(curve: SaddlePoints) -> Density | None:
    copy_mass, log_density = np.asarray(curve.copy_mass), _log_density(curve)
    good = np.flatnonzero(np.isfinite(log_density))
    if len(good) < 10:
        return None
    # The longest stretch without a gap; gaps matter only if the density is not negligible there.
    stretch = max(np.split(good, np.flatnonzero(np.diff(good) > 1) + 1), key=len)
    m, log_density = copy_mass[stretch], log_density[stretch]
    if max(log_density[0], log_density[-1]) > -7.0:
        return None
    inside = np.flatnonzero(log_density > -LOG_NEGLIGIBLE)
    if len(inside) < FEWEST_POINTS:
        return None
    low, high = max(inside[0] - 1, 0), min(inside[-1] + 1, len(m) - 1)
    grid = np.linspace(m[low], m[high], 1601)
    # Between the last points that matter and the next ones a spline could overshoot.
    log_probability = np.minimum(make_interp_spline(np.log(m), log_density, k=3)(np.log(grid)), 1.0)
    probability = np.exp(log_probability)
    return Density(grid, probability / np.trapezoid(probability, grid))
