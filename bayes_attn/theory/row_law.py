"""The exact law of one row of softmax attention under the prior (theory, section 4b).

Everything follows from the row's cumulant function

    Lambda(t, u) = log E exp(t p_0 + u sum_j p_j^2),      p_j = exp(S_j) / T,   T = sum_j exp(S_j).

No sampling is needed for it. Fixing T turns the row into independent terms tied by one constraint, which a Fourier
integral imposes:

    exp Lambda = int dtau (1/2 pi) int dk exp(z) g_0(z) g_1(z)^(L-1),      z = a + i k,   tau = log T,
    g_1(z) = E_S exp(-z p + u p^2),    g_0(z) = E_S exp((t - z) p + u p^2),    p = exp(S - tau).

The contour is shifted to the saddle point a(tau), where the terms' means add up to 1; then the integrand is positive
and nearly Gaussian at k = 0, and the trapezoidal rule, which converges faster than any power for such integrands,
gives about seven digits with a few hundred nodes, whatever L is. Since p <= 1 on the support of the constraint, the
integrand may be changed at will for p > 1; a smooth taper there keeps every integral finite.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

TAIL_WIDTHS = 6.5
"""The prior of a logit is cut at this many standard deviations (mass 8e-11)."""
LOG_NEGLIGIBLE = 18.0
"""Parts of the tau integral below exp(-18) of its peak are dropped."""
LARGE_WEIGHT = 0.7
"""A key other than the copied one counts as large above this weight."""
LEAST_REACH = 60.0
"""k goes at least this far, for the sake of the taper, which is felt when the copied key has nearly all the weight."""
TILT_STRIDE = 4
"""The tilt needs no accuracy (the integral does not depend on it), so it is found on every fourth node."""


class RowMoments(NamedTuple):
    """Lambda and its derivatives at one (t, u)."""

    cumulant: Float[Array, "*batch"]
    mean: Float[Array, "*batch 2"]
    """(m, q) of one row in the tilted law."""
    covariance: Float[Array, "*batch 2 2"]


class _Contour(NamedTuple):
    """Where the double integral is summed; it carries no derivatives."""

    tau: Float[Array, " tau"]
    tau_weights: Float[Array, " tau"]
    tilt: Float[Array, " tau"]
    """a(tau)."""
    k: Float[Array, " k"]


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

    @property
    def _others(self) -> int:
        return self.length - 1

    @property
    def _typical(self) -> float:
        """log T of a typical row without data."""
        return math.log(self.length) + self.logit_scale**2 / 2

    @property
    def _typical_reach(self) -> float:
        """The largest k that matters for a typical row without data."""
        return 7.0 * math.sqrt(self.length / math.expm1(self.logit_scale**2))

    def _nodes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """v = log p, p and the log-weights of the integral over S, without the Gaussian, which depends on tau.

        Nodes are denser near p = 1, where exp(i k p) oscillates fastest: v is the image of a uniform grid r under the
        inverse of r(v) = v + bend sqrt(p).
        """
        sigma, top = self.logit_scale, 0.6
        bottom = -self._typical - TAIL_WIDTHS * sigma
        bend = 12 * max(1.0, self._typical_reach / 90)

        def stretch(v: np.ndarray) -> np.ndarray:
            return v + bend * np.exp(v / 2)

        def slope(v: np.ndarray) -> np.ndarray:
            return 1 + 0.5 * bend * np.exp(v / 2)

        ends = stretch(np.array([bottom, top]))
        uniform = np.linspace(ends[0], ends[1], int((ends[1] - ends[0]) * 9 * self.resolution))
        fine = np.linspace(bottom, top, 20_000)
        v = np.interp(uniform, stretch(fine), fine)
        for _ in range(3):
            v = v - (stretch(v) - uniform) / slope(v)
        taper = np.where(v > 0, (np.maximum(v, 0) / 0.3) ** 6, 0.0)
        log_spacing = np.log((uniform[1] - uniform[0]) / slope(v))
        return v, np.exp(v), log_spacing - 0.5 * np.log(2 * np.pi * sigma**2) - taper

    def _log_weights(
        self, t: Array, u: Array, tilt: Array, tau: Array, stride: int = 1
    ) -> tuple[Float[Array, " node"], Float[Array, " node"]]:
        """Exponents of g_0 and g_1 at k = 0."""
        v, p, base = (jnp.asarray(x[::stride]) for x in self._nodes())
        shared = base - 0.5 * jnp.square((v + tau) / self.logit_scale) - tilt * p + u * p**2
        return shared + t * p, shared

    def _constraint(
        self, log_0: Float[Array, " node"], log_1: Float[Array, " node"], stride: int = 1
    ) -> tuple[Array, Array, Array]:
        """Mean and variance of sum_j p_j in the independent tilted law, and how many other keys are large in it."""
        p = self._nodes()[1][::stride]
        powers = jnp.asarray(np.stack([p, p**2, p > LARGE_WEIGHT], axis=1))
        mean_0, square_0, _ = jax.nn.softmax(log_0) @ powers
        mean_1, square_1, large = jax.nn.softmax(log_1) @ powers
        variance = square_0 - mean_0**2 + self._others * (square_1 - mean_1**2)
        return mean_0 + self._others * mean_1, variance, self._others * large

    def _find_tilt(self, t: Array, u: Array, tau: Array) -> Float[Array, ""]:
        """Root of log(mean of the sum) = 0 in the tilt: Newton, kept inside a shrinking bracket.

        A tilt that would make the sum by one large other key splits the law in two peaks, away from the value 1 that
        is wanted; the tilt stops short of that.
        """
        quantile = (math.log(LARGE_WEIGHT) + self._typical) / (self.logit_scale * math.sqrt(2))
        allowed = 1e-9 + self._others * math.erfc(quantile)

        def measure(tilt: Array) -> tuple[Array, Array, Array]:
            return self._constraint(*self._log_weights(t, u, tilt, tau, TILT_STRIDE), TILT_STRIDE)

        def step(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            tilt, low, high = state
            mean, variance, large = measure(tilt)
            too_low = (mean > 1) | (large > allowed)
            low, high = jnp.where(too_low, tilt, low), jnp.where(too_low, high, tilt)
            newton = tilt + jnp.log(mean) * mean / variance
            inside = (newton > low) & (newton < high)
            return jnp.where(inside, newton, 0.5 * (low + high)), low, high

        width = 80.0 + self.length / 2 + jnp.abs(t) + 4 * jnp.abs(u)
        tilt, _, high = jax.lax.fori_loop(0, 16, step, (jnp.zeros_like(t), -width, width))
        return jnp.where(measure(tilt)[2] > 2 * allowed, high, tilt)

    def _estimate(self, t: Array, u: Array, tilt: Array, tau: Array) -> tuple[Array, Array]:
        """Rough logarithm of the k integral (a Gaussian sum, or one key that makes up for the rest), and variance."""
        log_0, log_1 = self._log_weights(t, u, tilt, tau)
        norm_0, norm_1 = jax.nn.logsumexp(log_0), jax.nn.logsumexp(log_1)
        mean, variance, _ = self._constraint(log_0, log_1)
        gaussian = -0.5 * (jnp.square(1 - mean) / variance + jnp.log(2 * jnp.pi * variance))
        sigma, gap = self.logit_scale, jnp.clip(1 - mean, 0.02, 1.0)
        log_normal = -0.5 * jnp.square((jnp.log(gap) + tau) / sigma) - jnp.log(sigma * math.sqrt(2 * math.pi) * gap)
        jump = log_normal - tilt * gap + u * gap**2 - norm_1 + math.log(self._others)
        return tilt + norm_0 + self._others * norm_1 + jnp.logaddexp(gaussian, jump), variance

    def _contour(self, t: Array, u: Array) -> _Contour:
        """Where the tau integral lives and how far k must reach there, from a coarse pass."""
        # tau = typical value + spread * sinh(r): dense where log T lies without data, and wide enough for a copied key.
        sigma = self.logit_scale
        spread = 4 * min(math.sqrt(math.expm1(sigma**2) / self.length), 0.25)
        ends = -math.asinh((1.5 * sigma + sigma**2 / 2) / spread), math.asinh(7.0 / spread)

        def tau_of(r: Array) -> Array:
            return self._typical + spread * jnp.sinh(r)

        find_tilt = jax.vmap(partial(self._find_tilt, t, u))
        coarse = jnp.linspace(*ends, 48)
        estimate, variance = jax.vmap(partial(self._estimate, t, u))(find_tilt(tau_of(coarse)), tau_of(coarse))
        height = estimate - estimate.max()
        alive = height > -LOG_NEGLIGIBLE
        step = coarse[1] - coarse[0]
        low = jnp.min(jnp.where(alive, coarse, jnp.inf)) - step
        high = jnp.max(jnp.where(alive, coarse, -jnp.inf)) + step
        narrowest = jnp.sqrt(jnp.min(jnp.where(height > -12.0, variance, jnp.inf)))
        reach = jnp.maximum(7.0 / narrowest, LEAST_REACH) * math.sqrt(self.resolution)

        r = low + (high - low) * jnp.linspace(0.0, 1.0, int(48 * self.resolution))
        tau = tau_of(r)
        num_k = int(max(56.0, 0.37 * self._typical_reach) * self.resolution)
        return _Contour(tau, spread * jnp.cosh(r) * (r[1] - r[0]), find_tilt(tau), reach * jnp.arange(num_k) / num_k)

    def _cumulant(self, fields: Float[Array, " 2"], contour: _Contour) -> Float[Array, ""]:
        tau, tau_weights, tilt, k = contour
        log_0, log_1 = jax.vmap(partial(self._log_weights, *fields))(tilt, tau)
        norm_0, norm_1 = jax.nn.logsumexp(log_0, axis=1), jax.nn.logsumexp(log_1, axis=1)
        phase = jnp.outer(self._nodes()[1], k)
        cosine, sine = jnp.cos(phase), jnp.sin(phase)

        def transform(log_weight: Array, norm: Array) -> Array:
            weight = jnp.exp(log_weight - norm[:, None])
            return jax.lax.complex(weight @ cosine, -(weight @ sine))

        integrand = jnp.exp(1j * k) * transform(log_0, norm_0) * transform(log_1, norm_1) ** self._others
        k_weights = jnp.where(jnp.arange(len(k)) == 0, 0.5, 1.0) * (k[1] - k[0]) / jnp.pi
        log_front = tilt + norm_0 + self._others * norm_1
        top = jax.lax.stop_gradient(log_front.max())
        return top + jnp.log(jnp.sum(tau_weights * jnp.exp(log_front - top) * (integrand.real @ k_weights)))

    def moments(self, t: Float[Array, ""], u: Float[Array, ""]) -> RowMoments:
        """Lambda with first and second derivatives at one point, u <= 0; call inside `jax.enable_x64`."""
        contour = self._contour(t, u)

        def first_order(fields: Array) -> tuple[Array, tuple[Array, Array]]:
            cumulant, mean = jax.value_and_grad(self._cumulant)(fields, contour)
            return mean, (cumulant, mean)

        covariance, (cumulant, mean) = jax.jacfwd(first_order, has_aux=True)(jnp.stack([t, u]))
        return RowMoments(cumulant, mean, covariance)
