"""Softmax attention: the S-shaped curve of saddle points and the density of the copy mass (theory, section 4b).

Under the prior the rows of a softmax attention matrix are independent, so the effective action of (m, q) is
F = U + L I, with I the Legendre transform of one row's cumulant function (`row_law`).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import PchipInterpolator, make_interp_spline

from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.action import Action, Density, specification
from bayes_attn.theory.row_law import RowLaw, RowMoments

LARGEST_ERROR = 1e-3
"""How far the row law may be off where its value is known exactly."""
BLOCK = 32
"""Points marched per compiled call."""
MOST_BLOCKS = 20
"""Blocks after which the copy phase is given up."""


class SaddlePoints(NamedTuple):
    """Points on a curve of saddle points; all arrays of one shape."""

    conjugate_copy_mass: Float[Array | np.ndarray, "*point"]
    """t."""
    conjugate_participation: Float[Array | np.ndarray, "*point"]
    """u."""
    load: Float[Array | np.ndarray, "*point"]
    copy_mass: Float[Array | np.ndarray, "*point"]
    participation: Float[Array | np.ndarray, "*point"]
    effective_action: Float[Array | np.ndarray, "*point"]
    """F = U + L I, in kT."""
    log_prefactor: Float[Array | np.ndarray, "*point"]
    """Logarithm of the Gaussian fluctuation factor of p(m)."""


class _Start(NamedTuple):
    """Where a march begins: a point and du/dt there, to extrapolate from."""

    t: Float[Array, ""]
    u: Float[Array, ""]
    slope: Float[Array, ""]


@eqx.filter_jit
def _march(
    row_law: RowLaw,
    action: Action,
    conjugates: Float[Array, " point"],
    start: _Start,
    load: Array | None,
    tolerance: float,
) -> tuple[SaddlePoints, _Start]:
    """Saddle points at each t of `conjugates`, one after the other, each started from the last one.

    With a `load`, q is stationary at that load and t is free: the curve along which p(m) is evaluated. Without one, m
    is stationary too and the load follows from t: the S-curve. Where Newton's method fails, the point is NaN.
    """

    def load_at(t: Array, mean: Array) -> Array:
        return action.load_of_conjugate(t, mean[0], mean[1]) if load is None else load

    def residual(u: Array, t: Array, mean: Array) -> Array:
        return u - action.conjugate_participation(load_at(t, mean), mean[0], mean[1])

    def solve(guess: Array, t: Array) -> tuple[Array, Array, RowMoments]:
        def unfinished(state: tuple[Array, Array, RowMoments, Array, Array]) -> Array:
            u, _, _, change, iteration = state
            return (jnp.abs(change) > tolerance * (1 + jnp.abs(u))) & (iteration < 25)

        def newton(
            state: tuple[Array, Array, RowMoments, Array, Array],
        ) -> tuple[Array, Array, RowMoments, Array, Array]:
            u, _, _, _, iteration = state
            moments = row_law.moments(t, u)
            one, zero = jnp.ones_like(u), jnp.zeros_like(u)
            value, by_u = jax.jvp(residual, (u, t, moments.mean), (one, zero, moments.covariance[1]))
            _, by_t = jax.jvp(residual, (u, t, moments.mean), (zero, one, moments.covariance[0]))
            limit = 0.5 + 0.5 * jnp.abs(u)
            change = jnp.clip(-value / by_u, -limit, limit)
            return jnp.minimum(u + change, 0.0), -by_t / by_u, moments, change, iteration + 1

        nothing = RowMoments(jnp.zeros_like(t), jnp.zeros(2), jnp.zeros((2, 2)))
        first = (guess, jnp.zeros_like(t), nothing, jnp.full_like(t, jnp.inf), jnp.zeros((), int))
        u, slope, moments, change, _ = jax.lax.while_loop(unfinished, newton, first)
        return jnp.where(jnp.abs(change) > 1e-4 * (1 + jnp.abs(u)), jnp.nan, u), slope, moments

    def advance(last: _Start, t: Array) -> tuple[_Start, SaddlePoints]:
        guess = jnp.minimum(last.u + jnp.nan_to_num(last.slope) * (t - last.t), 0.0)
        u, slope, (cumulant, (m, q), covariance) = solve(guess, t)
        point_load = load_at(t, jnp.stack([m, q]))
        entropy = t * m + u * q - cumulant
        free = action.bulk(point_load, m, q) + action.length * entropy
        curvature = jax.grad(lambda x: -action.conjugate_participation(point_load, m, x))(q)
        stiffness = jnp.linalg.inv(covariance)[1, 1] + curvature
        prefactor = -0.5 * (jnp.log(jnp.linalg.det(covariance)) + jnp.log(stiffness))
        return _Start(t, u, slope), SaddlePoints(t, u, point_load, m, q, free, prefactor)

    end, points = jax.lax.scan(advance, start, conjugates)
    return points, end


def s_curve(posterior: CopyPosterior, resolution: float = 1.0) -> SaddlePoints:
    """The whole curve of saddle points (m, q, load), from load 0 to well inside the copy phase (theory, section 4b).

    Parametrised by t, along which it is single-valued; where the transition is first-order the load has a maximum
    (end of the disordered phase) and a minimum (end of the copy phase). Numpy arrays in float64; dimensionless, F in
    kT.

    Raises
    ------
    InvalidInput: the posterior is not softmax, its prior is not IidLogits, or the task is causal.
    ArithmeticError: the march found no solution.
    """
    action, row_law = _checked(posterior, resolution)
    with jax.enable_x64(True):
        scout = _explore(row_law, action)
        # Along t some stretches pass in a flash; evenly spaced along the curve itself, splines of it are accurate.
        step = np.hypot(np.diff(np.log(scout.load)), np.diff(np.log(scout.copy_mass)))
        length = np.concatenate([[0.0], np.cumsum(np.hypot(step, 0.5 * np.diff(np.log(scout.conjugate_copy_mass))))])
        count = BLOCK * int(6 * resolution)
        even = np.linspace(0.0, length[-1], count)
        conjugates = np.exp(PchipInterpolator(length, np.log(scout.conjugate_copy_mass))(even))
        return _march_in_blocks(row_law, action, conjugates)


def _checked(posterior: CopyPosterior, resolution: float) -> tuple[Action, RowLaw]:
    """The action and the row law, refused where the quadrature misses two exact values: Lambda(0, 0) = 0, m = 1/L."""
    action, logit_scale = specification(posterior, "softmax")
    row_law = RowLaw(action.length, logit_scale, resolution)
    with jax.enable_x64(True):
        cumulant, mean, _ = _moments(row_law, jnp.zeros(()), jnp.zeros(()))
    error = max(abs(float(cumulant)), abs(float(mean[0]) * action.length - 1))
    if not error < LARGEST_ERROR:
        what = f"logit_scale = {logit_scale:g} at length = {action.length}"
        raise ArithmeticError(f"the law of a row is not resolved for {what} (off by {error:.1g})")
    return action, row_law


@eqx.filter_jit
def _moments(row_law: RowLaw, t: Float[Array, ""], u: Float[Array, ""]) -> RowMoments:
    return row_law.moments(t, u)


def _explore(row_law: RowLaw, action: Action) -> SaddlePoints:
    """March along t until well inside the copy phase."""
    last, start, curve = 0.0, _Start(*jnp.zeros(3)), None
    for _ in range(MOST_BLOCKS):
        block = []
        for _ in range(BLOCK):
            last += 0.06 * max(0.5, last)
            block.append(last)
        points, start = _march(row_law, action, jnp.asarray(block), start, None, 1e-8)
        new = jax.tree.map(np.asarray, points)
        curve = new if curve is None else jax.tree.map(lambda a, b: np.concatenate([a, b]), curve, new)
        _refuse_gaps(curve)
        turns = np.flatnonzero(np.diff(np.sign(np.diff(curve.load))))
        if len(turns) == 0 and curve.copy_mass[-1] > 0.65:
            return curve
        if len(turns) > 1 and curve.load[-1] > 1.2 * curve.load[turns[0] + 1]:
            return curve
    raise ArithmeticError(f"the copy phase was not reached by t = {last:.3g} for {action}")


def _march_in_blocks(row_law: RowLaw, action: Action, conjugates: np.ndarray) -> SaddlePoints:
    start, pieces = _Start(*jnp.zeros(3)), []
    for block in conjugates.reshape(-1, BLOCK):
        points, start = _march(row_law, action, jnp.asarray(block), start, None, 1e-8)
        pieces.append(jax.tree.map(np.asarray, points))
    curve = SaddlePoints(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
    _refuse_gaps(curve)
    return curve


def _refuse_gaps(curve: SaddlePoints) -> None:
    if not np.all(np.isfinite(curve.load)):
        lost = np.asarray(curve.conjugate_copy_mass)[~np.isfinite(curve.load)][0]
        raise ArithmeticError(f"no saddle point was found near t = {lost:.3g}")


def densities(posterior: CopyPosterior, loads: list[float], resolution: float = 1.0) -> list[Density | None]:
    """p(m) at each load, at finite L, with the Gaussian fluctuation factor beyond the saddle (theory, section 4b).

        p(m) ~ exp(-F(m)) / sqrt(det Cov * (d^2 (I + U/L) / dq^2)),     F(m) = min over q of F(m, q).

    Relative corrections are of order 1/L. None where no single-valued curve of saddle points spans the density.
    Raises as `s_curve`.
    """
    action, row_law = _checked(posterior, resolution)
    bend, count = 2.0, int(22 * resolution)
    with jax.enable_x64(True):
        load = jnp.asarray(loads, dtype=float)
        # Perfect copying has this conjugate; the sinh puts most nodes where t is of order 1.
        ceiling = 1.5 * action.conjugate_copy_mass(load, 1.0, 1.0) + 50.0 + 600.0 / action.length
        outward = bend * jnp.sinh(jnp.linspace(0, jnp.arcsinh(ceiling / bend), 2 * count)).T
        deepest = jnp.full_like(load, 12.0 * action.length + 400.0 / action.length)
        inward = -bend * jnp.sinh(jnp.linspace(0, jnp.arcsinh(deepest / bend), count)).T[:, 1:]
        zero = jnp.zeros_like(load)
        guess = action.conjugate_participation(load, 1 / action.length, 2 / action.length)
        march = jax.vmap(lambda conjugates, start, at: _march(row_law, action, conjugates, start, at, 1e-5))
        upper, _ = march(outward, _Start(zero, guess, zero), load)
        lower, _ = march(inward, _Start(zero, jnp.asarray(upper.conjugate_participation)[:, 0], zero), load)
        curves = jax.tree.map(lambda a, b: np.concatenate([np.asarray(b)[:, ::-1], np.asarray(a)], 1), upper, lower)
    start = inward.shape[1]
    found: list[Density | None] = []
    for number in range(len(loads)):
        m = curves.copy_mass[number]
        # Near m = 1 the covariance is nearly singular and its determinant may be lost to rounding.
        index, known = np.arange(len(m)), np.isfinite(curves.log_prefactor[number])
        prefactor = np.interp(index, index[known], curves.log_prefactor[number][known])
        log_density = prefactor - curves.effective_action[number]
        # Far out the march may lose its way; that matters only if the density is not negligible there.
        good = np.isfinite(log_density)
        good[start + 1 :] &= np.diff(m[start:]) > 0
        good[:start] &= np.diff(m[: start + 1]) > 0
        first = max(np.flatnonzero(~good[: start + 1]), default=-1) + 1
        last = start + min(np.flatnonzero(~good[start:]), default=len(m) - start)
        m, log_density = m[first:last], log_density[first:last]
        if len(m) < 10 or max(log_density[0], log_density[-1]) > log_density.max() - 7.0:
            found.append(None)
            continue
        log_density = log_density - log_density.max()
        inside = np.flatnonzero(log_density > -30.0)
        low, high = max(inside[0] - 1, 0), min(inside[-1] + 1, len(m) - 1)
        grid = np.linspace(m[low], m[high], 801)
        probability = np.exp(make_interp_spline(m, log_density, k=3)(grid))
        found.append(Density(grid, probability / np.trapezoid(probability, grid)))
    return found
