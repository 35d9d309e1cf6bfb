"""Softmax attention: the exact law of one row, the S-shaped curve of saddle points and the density of m.

Under the prior the rows of a softmax attention matrix are independent, so everything follows from the cumulant
function of one row (theory, section 4b),

    Lambda(t, u) = log E exp(t p_0 + u sum_j p_j^2),      p_j = exp(S_j) / T,   T = sum_j exp(S_j).

No sampling is needed for it. Fixing T turns the row into independent terms tied by one constraint, which a Fourier
integral imposes:

    exp Lambda = int dtau (1/2 pi) int dk exp(z) g_0(z) g_1(z)^(L-1),      z = a + i k,   tau = log T,
    g_1(z) = E_S exp(-z p + u p^2),    g_0(z) = E_S exp((t - z) p + u p^2),    p = exp(S - tau).

The contour is shifted to the saddle point a(tau), where the terms' means add up to 1; then the integrand is positive
and nearly Gaussian at k = 0, and the trapezoidal rule, which converges faster than any power for such integrands,
gives about eight digits with a few hundred nodes, at a cost that does not depend on L. Since p <= 1 on the support of
the constraint, the integrand may be changed at will for p > 1; a smooth taper there keeps every integral finite.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import make_interp_spline

from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.action import Action, Density, specification

TAIL_WIDTHS = 6.5
"""The prior of a logit is cut at this many standard deviations (mass 8e-11)."""
LOG_NEGLIGIBLE = 18.0
"""Parts of the tau integral below exp(-18) of its peak are dropped."""
LARGE_WEIGHT = 0.7
"""A key other than the copied one counts as large above this weight."""
TILT_STRIDE = 4
"""The tilt needs no accuracy (the integral does not depend on it), so it is found on every fourth node."""


class RowMoments(NamedTuple):
    """Lambda and its derivatives at one (t, u)."""

    cumulant: Float[Array, "*batch"]
    mean: Float[Array, "*batch 2"]
    """(m, q) of one row in the tilted law."""
    covariance: Float[Array, "*batch 2 2"]


@dataclass(frozen=True)
class RowLaw:
    """The law of (copy mass, participation) of one row of softmax attention under the prior.

    Parameters
    ----------
    length: keys L.
    logit_scale: sigma_s.
    resolution: multiplies the number of nodes in every direction; comparing two resolutions gives the error.
    """

    length: int
    logit_scale: float
    resolution: float = 1.0

    def _nodes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """v = log p, p and the log-weights of the prior integral, without the Gaussian, which depends on tau.

        Nodes are denser near p = 1, where exp(i k p) oscillates fastest: v is the image of a uniform grid r under the
        inverse of r(v) = v + bend sqrt(p). The bend follows the largest k that matters, which grows like sqrt(L).
        """
        sigma, top = self.logit_scale, 0.6
        bottom = -(np.log(self.length) + sigma**2 / 2) - TAIL_WIDTHS * sigma
        bend = 12 * max(1.0, math.sqrt(self.length) / 16)

        def stretch(v: np.ndarray) -> np.ndarray:
            return v + bend * np.exp(v / 2)

        ends = stretch(np.array([bottom, top]))
        uniform = np.linspace(*ends, int((ends[1] - ends[0]) * 9 * self.resolution))
        fine = np.linspace(bottom, top, 20_000)
        v = np.interp(uniform, stretch(fine), fine)
        for _ in range(3):
            v = v - (stretch(v) - uniform) / (1 + 0.5 * bend * np.exp(v / 2))
        spacing = (uniform[1] - uniform[0]) / (1 + 0.5 * bend * np.exp(v / 2))
        taper = np.where(v > 0, (np.maximum(v, 0) / 0.3) ** 6, 0.0)
        return v, np.exp(v), np.log(spacing) - 0.5 * np.log(2 * np.pi * sigma**2) - taper

    def _cumulant(self, fields: Float[Array, " 2"]) -> Float[Array, ""]:
        t, u = fields
        others = self.length - 1
        sigma = self.logit_scale
        v, p, base = (jnp.asarray(x) for x in self._nodes())

        typical = math.log(self.length) + sigma**2 / 2
        untilted = others * 0.5 * math.erfc((math.log(LARGE_WEIGHT) + typical) / (sigma * math.sqrt(2)))
        allowed = 1e-9 + 2 * untilted

        def log_weights(tilt: Array, tau: Array, nodes: slice) -> tuple[Array, Array]:
            """Exponents of g_0 and g_1 at k = 0."""
            shared = base[nodes] - 0.5 * jnp.square((v[nodes] + tau) / sigma) - tilt * p[nodes] + u * p[nodes] ** 2
            return shared + t * p[nodes], shared

        def constraint(tilt: Array, tau: Array, nodes: slice) -> tuple[Array, Array, Array]:
            """Mean and variance of sum_j p_j in the independent tilted law, and how many other keys are large in it."""
            powers = jnp.stack([p[nodes], p[nodes] ** 2, p[nodes] > LARGE_WEIGHT], axis=1)
            moments = [jax.nn.softmax(w) @ powers for w in log_weights(tilt, tau, nodes)]
            (mean_0, square_0, _), (mean_1, square_1, large) = moments
            variance = square_0 - mean_0**2 + others * (square_1 - mean_1**2)
            return mean_0 + others * mean_1, variance, others * large

        def find_tilt(tau: Array) -> Array:
            """Root of log(mean of the sum) = 0 in the tilt: Newton, kept inside a shrinking bracket.

            A tilt that would make the sum by one large other key splits the law in two peaks, away from the value 1
            that is wanted; the tilt stops short of that.
            """

            def step(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                tilt, low, high = state
                mean, variance, large = constraint(tilt, tau, slice(None, None, TILT_STRIDE))
                too_low = (mean > 1) | (large > allowed)
                low, high = jnp.where(too_low, tilt, low), jnp.where(too_low, high, tilt)
                newton = tilt + jnp.log(mean) * mean / variance
                inside = (newton > low) & (newton < high)
                return jnp.where(inside, newton, 0.5 * (low + high)), low, high

            width = 80.0 + self.length / 2 + jnp.abs(t) + 4 * jnp.abs(u)
            tilt, _, high = jax.lax.fori_loop(0, 16, step, (jnp.zeros_like(t), -width, width))
            split = constraint(tilt, tau, slice(None, None, TILT_STRIDE))[2] > 2 * allowed
            return jnp.where(split, high, tilt)

        def estimate(tilt: Array, tau: Array) -> tuple[Array, Array]:
            """Rough logarithm of the k integral (a Gaussian sum, or one key that makes up for the rest), and variance."""
            log_0, log_1 = log_weights(tilt, tau, slice(None))
            norm_0, norm_1 = jax.nn.logsumexp(log_0), jax.nn.logsumexp(log_1)
            mean, variance, _ = constraint(tilt, tau, slice(None))
            gaussian = -0.5 * (jnp.square(1 - mean) / variance + jnp.log(2 * jnp.pi * variance))
            gap = jnp.clip(1 - mean, 0.02, 1.0)
            log_normal = -0.5 * jnp.square((jnp.log(gap) + tau) / sigma) - jnp.log(sigma * math.sqrt(2 * jnp.pi) * gap)
            jump = log_normal - tilt * gap + u * gap**2 - norm_1 + math.log(others)
            return tilt + norm_0 + others * norm_1 + jnp.logaddexp(gaussian, jump), variance

        # tau = typical value + spread * sinh(r): dense where log T lies without data, and wide enough for a copied key.
        spread = 4 * min(math.sqrt(math.expm1(sigma**2) / self.length), 0.25)
        r_low = -math.asinh((1.5 * sigma + sigma**2 / 2) / spread)
        r_high = math.asinh(4.0 / spread)

        def tau_of(r: Array) -> Array:
            return typical + spread * jnp.sinh(r)

        # Where the tau integral lives, and how far k must reach there: a coarse pass, without derivatives.
        scout_r = jnp.linspace(r_low, r_high, 40)
        tilt = jax.vmap(find_tilt)(tau_of(scout_r))
        scout, variance = jax.vmap(estimate)(tilt, tau_of(scout_r))
        alive = scout > scout.max() - LOG_NEGLIGIBLE
        step = scout_r[1] - scout_r[0]
        low = jnp.min(jnp.where(alive, scout_r, jnp.inf)) - step
        high = jnp.max(jnp.where(alive, scout_r, -jnp.inf)) + step
        reach = 7.0 / jnp.sqrt(jnp.min(jnp.where(scout > scout.max() - 12.0, variance, jnp.inf)))

        num_tau = int(48 * self.resolution)
        num_k = int(max(56.0, 2 * math.sqrt(self.length)) * self.resolution)
        r = jax.lax.stop_gradient(low + (high - low) * jnp.linspace(0.0, 1.0, num_tau))
        tau, tau_weights = tau_of(r), spread * jnp.cosh(r) * (r[1] - r[0])
        k = jax.lax.stop_gradient(reach * jnp.arange(num_k) / num_k)
        tilt = jax.lax.stop_gradient(jax.vmap(find_tilt)(tau))
        log_0, log_1 = jax.vmap(partial(log_weights, nodes=slice(None)))(tilt, tau)
        norm_0, norm_1 = jax.nn.logsumexp(log_0, axis=1), jax.nn.logsumexp(log_1, axis=1)
        phase = jnp.outer(p, k)
        cosine, sine = jnp.cos(phase), jnp.sin(phase)

        def transform(log_weight: Array, norm: Array) -> Array:
            weight = jnp.exp(log_weight - norm[:, None])
            return jax.lax.complex(weight @ cosine, -(weight @ sine))

        integrand = jnp.exp(1j * k) * transform(log_0, norm_0) * transform(log_1, norm_1) ** others
        k_weights = jnp.where(jnp.arange(num_k) == 0, 0.5, 1.0) * (k[1] - k[0]) / jnp.pi
        log_front = tilt + norm_0 + others * norm_1
        top = jax.lax.stop_gradient(log_front.max())
        total = jnp.sum(tau_weights * jnp.exp(log_front - top) * (integrand.real @ k_weights))
        return top + jnp.log(total)

    def moments(self, t: Float[Array, ""], u: Float[Array, ""]) -> RowMoments:
        """Lambda with first and second derivatives at one point; call inside `jax.enable_x64`."""

        def first_order(fields: Array) -> tuple[Array, tuple[Array, Array]]:
            cumulant, mean = jax.value_and_grad(self._cumulant)(fields)
            return mean, (cumulant, mean)

        covariance, (cumulant, mean) = jax.jacfwd(first_order, has_aux=True)(jnp.stack([t, u]))
        return RowMoments(cumulant, mean, covariance)


class SaddlePoints(NamedTuple):
    """Points on a curve of saddle points; all arrays of one shape."""

    conjugate_copy_mass: Float[Array, "*point"]
    """t."""
    conjugate_participation: Float[Array, "*point"]
    """u."""
    load: Float[Array, "*point"]
    copy_mass: Float[Array, "*point"]
    participation: Float[Array, "*point"]
    effective_action: Float[Array, "*point"]
    """F = U + L I, in kT."""
    log_prefactor: Float[Array, "*point"]
    """Logarithm of the Gaussian fluctuation factor of p(m)."""


@eqx.filter_jit
def _march(
    row_law: RowLaw, action: Action, conjugates: Float[Array, " point"], start: Float[Array, ""], load: Array | None
) -> tuple[SaddlePoints, Float[Array, ""]]:
    """Saddle points at each t of `conjugates`, one after the other, each started from the last one's u.

    With a `load`, q is stationary at that load and t is free: the curve along which p(m) is evaluated. Without one, m
    is stationary too and the load follows from t: the S-curve.
    """

    def load_at(t: Array, mean: Array) -> Array:
        return action.load_of_conjugate(t, mean[0], mean[1]) if load is None else load

    def residual(u: Array, t: Array, mean: Array) -> Array:
        return u - action.conjugate_participation(load_at(t, mean), mean[0], mean[1])

    def solve(guess: Array, t: Array) -> tuple[Array, RowMoments]:
        def unfinished(state: tuple[Array, RowMoments, Array, Array]) -> Array:
            u, _, change, iteration = state
            return (jnp.abs(change) > 1e-9 * (1 + jnp.abs(u))) & (iteration < 40)

        def newton(state: tuple[Array, RowMoments, Array, Array]) -> tuple[Array, RowMoments, Array, Array]:
            u, _, _, iteration = state
            moments = row_law.moments(t, u)
            tangents = (jnp.ones_like(u), jnp.zeros_like(t), moments.covariance[1])
            value, slope = jax.jvp(residual, (u, t, moments.mean), tangents)
            limit = 0.5 + 0.5 * jnp.abs(u)
            change = jnp.clip(-value / slope, -limit, limit)
            return jnp.minimum(u + change, 0.0), moments, change, iteration + 1

        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(row_law.moments, t, guess))
        u, moments, change, _ = jax.lax.while_loop(
            unfinished, newton, (guess, nothing, jnp.full_like(t, jnp.inf), jnp.zeros((), int))
        )
        return jnp.where(jnp.abs(change) > 1e-6 * (1 + jnp.abs(u)), jnp.nan, u), moments

    def advance(guess: Array, t: Array) -> tuple[Array, SaddlePoints]:
        u, (cumulant, (m, q), covariance) = solve(guess, t)
        point_load = load_at(t, jnp.stack([m, q]))
        entropy = t * m + u * q - cumulant
        free = action.bulk(point_load, m, q) + action.length * entropy
        curvature = jax.grad(lambda x: -action.conjugate_participation(point_load, m, x))(q)
        stiffness = jnp.linalg.inv(covariance)[1, 1] + curvature
        prefactor = -0.5 * (jnp.log(jnp.linalg.det(covariance)) + jnp.log(stiffness))
        return u, SaddlePoints(t, u, point_load, m, q, free, prefactor)

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
    action, logit_scale = specification(posterior, "softmax")
    row_law = RowLaw(action.length, logit_scale, resolution)
    spacing, block = 0.06 / resolution, 32
    pieces: list[SaddlePoints] = []
    with jax.enable_x64(True):
        guess, last = jnp.asarray(-0.01), 0.0
        while True:
            conjugates = []
            for _ in range(block):
                last += spacing * max(0.5, last)
                conjugates.append(last)
            points, guess = _march(row_law, action, jnp.asarray(conjugates), guess, None)
            pieces.append(jax.tree.map(np.asarray, points))
            curve = SaddlePoints(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
            if not np.all(np.isfinite(curve.load)):
                raise ArithmeticError(f"no saddle point near t = {last:.3g} for {posterior}")
            turns = np.flatnonzero(np.diff(np.sign(np.diff(curve.load))))
            if len(turns) == 0 and curve.copy_mass[-1] > 0.65:
                return curve
            if len(turns) > 1 and curve.load[-1] > 1.2 * curve.load[turns[0] + 1]:
                return curve
            if len(pieces) > 20:
                raise ArithmeticError(f"the copy phase was not reached by t = {last:.3g} for {posterior}")


def density(posterior: CopyPosterior, load: float, resolution: float = 1.0) -> Density:
    """p(m) at finite L with the Gaussian fluctuation factor beyond the saddle (theory, section 4b).

        p(m) ~ exp(-F(m)) / sqrt(det Cov * (d^2 (I + U/L) / dq^2)),     F(m) = min over q of F(m, q).

    Relative corrections are of order 1/L. Raises as `s_curve`.
    """
    action, logit_scale = specification(posterior, "softmax")
    row_law = RowLaw(action.length, logit_scale, resolution)
    with jax.enable_x64(True):
        # m -> 1 costs more than any data can pay at a t some times the conjugate of a perfect copy.
        ceiling = 1.5 * float(action.conjugate_copy_mass(load, 1.0, 1.0)) + 12.0
        bend, count = 2.0, int(28 * resolution)
        outward = bend * np.sinh(np.linspace(0, np.arcsinh(ceiling / bend), 2 * count))
        inward = -bend * np.sinh(np.linspace(0, np.arcsinh(12.0 * action.length / bend), count))[1:]
        guess = action.conjugate_participation(jnp.asarray(load), 1 / action.length, 2 / action.length)
        upper, _ = _march(row_law, action, jnp.asarray(outward), guess, jnp.asarray(load))
        lower, _ = _march(row_law, action, jnp.asarray(inward), upper.conjugate_participation[0], jnp.asarray(load))
    curve = SaddlePoints(
        *(np.concatenate([np.asarray(b)[::-1], np.asarray(a)]) for a, b in zip(upper, lower, strict=True))
    )
    m, log_density = curve.copy_mass, curve.log_prefactor - curve.effective_action
    # Far out the march may end; that matters only if the density is not negligible there.
    broken = np.flatnonzero(~np.isfinite(log_density))
    first = max(broken[broken < len(inward)], default=-1) + 1
    last = min(broken[broken > len(inward)], default=len(m))
    m, log_density = m[first:last], log_density[first:last]
    if len(m) < 10 or np.any(np.diff(m) <= 0) or max(log_density[0], log_density[-1]) > log_density.max() - 12.0:
        raise ArithmeticError(f"no single-valued curve of saddle points in m at load {load:.6g} for {posterior}")
    log_density = log_density - log_density.max()
    inside = np.flatnonzero(log_density > -30.0)
    low, high = max(inside[0] - 1, 0), min(inside[-1] + 1, len(m) - 1)
    grid = np.linspace(m[low], m[high], 801)
    probability = np.exp(make_interp_spline(m, log_density, k=3)(grid))
    return Density(grid, probability / np.trapezoid(probability, grid))
