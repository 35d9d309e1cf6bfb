"""The exact law of one row of softmax attention under the prior (theory, section 4b).

Everything follows from the row's cumulant function

    Lambda(t, u) = log E exp(t x + u y),      x = p_source,   y = sum_j p_j^2,   p = softmax of i.i.d. normal logits.

No sampling is needed for it. Let z = log sum_j exp(S_j) over n keys and r the participation among them. What has to be
known of those keys is

    G_n(z; w) = E[ delta(log sum_j exp(S_j) - z) exp(-w r) ],

and groups of keys merge: with eta = z_b - z_a the log-odds of group b and share = sigmoid(eta) its weight,

    G_(a+b)(z; w) = int d eta G_a(z - softplus(eta); w (1 - share)^2) G_b(z - softplus(-eta); w share^2).

Halving n again and again needs two merges per level, whatever L is. Every integrand is positive and smooth, so the
trapezoidal rule converges faster than any power. The copied key joins at the end, with xi = logit(x):

    exp Lambda(t, u) = int d xi exp(t x + u x^2) int dz Normal(xi + z; 0, sigma^2) G_(L-1)(z; -u (1 - x)^2).

The inner integral is kept as a table over (w, xi); Lambda then costs one sum over xi.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial.chebyshev import chebpts1, chebvander
from scipy.interpolate import BSpline, make_interp_spline
from scipy.special import expit, log_expit

LARGEST_FIELD = 1e6
"""Largest |u| that the tables cover."""
NODES = {"z": 96, "w": 72, "eta": 360, "xi": 960}
"""Nodes in every direction at resolution 1."""
WIDTHS = 9.0
"""Standard deviations at which normal laws are cut."""
LARGEST_LOG_ODDS = 14.0
"""The copied key's weight is followed up to 1 - 8e-7."""
MOST_ROWS = 40
"""Kinds of row of a causal task that are computed; further ones are interpolated in log n."""


class RowMoments(NamedTuple):
    """Lambda and its derivatives at one (t, u)."""

    cumulant: Float[Array, "*batch"]
    mean: Float[Array, "*batch 2"]
    """(m, q) of one row in the tilted law."""
    covariance: Float[Array, "*batch 2 2"]


class RowLaw(eqx.Module):
    """The law of (copy mass, participation) of one row of softmax attention; a mean over kinds of rows if they differ.

    Made by `row_law`. Call its methods inside `jax.enable_x64`. Laws have arrays of equal shape, whatever the length,
    the logit scale and the resolution, up to 1.
    """

    share: Float[np.ndarray, " row"]
    """Share of each kind of row among all rows; a weight of the interpolation where kinds are left out."""
    others: Float[np.ndarray, " row"]
    """Keys besides the copied one, n."""
    log_odds: Float[np.ndarray, "row xi"]
    """Nodes of xi."""
    pieces: Float[np.ndarray, "row order interval xi"]
    """Of the quintic spline of log H(xi; w) + w / n in log(1 + w), on even intervals; highest power first."""

    def _one_row(self, fields: Array, others: Array, log_odds: Array, pieces: Array) -> Float[Array, ""]:
        t, u = fields
        copied, rest = jax.nn.sigmoid(log_odds), jax.nn.sigmoid(-log_odds)
        intervals = pieces.shape[1]
        at = jnp.log1p(-u * rest**2) * (intervals / math.log1p(LARGEST_FIELD))
        interval = jnp.clip(jax.lax.stop_gradient(at).astype(int), 0, intervals - 1)
        log_density = jnp.polyval(pieces[:, interval, jnp.arange(len(log_odds))], at - interval)
        log_weight = log_density + t * copied + u * (copied**2 + rest**2 / others)
        return jax.nn.logsumexp(log_weight) + jnp.log(log_odds[1] - log_odds[0])

    def cumulant(self, fields: Float[Array, " 2"]) -> Float[Array, ""]:
        """Lambda at fields = (t, u), u <= 0; NaN beyond the tables, at u < -LARGEST_FIELD."""
        each = jax.vmap(self._one_row, in_axes=(None, 0, 0, 0))(
            fields, jnp.asarray(self.others), jnp.asarray(self.log_odds), jnp.asarray(self.pieces)
        )
        return jnp.where(fields[1] >= -LARGEST_FIELD, jnp.asarray(self.share) @ each, jnp.nan)

    def moments(self, t: Float[Array, ""], u: Float[Array, ""]) -> RowMoments:
        """Lambda with first and second derivatives at one point, -LARGEST_FIELD <= u <= 0."""

        def first_order(fields: Array) -> tuple[Array, tuple[Array, Array]]:
            cumulant, mean = jax.value_and_grad(self.cumulant)(fields)
            return mean, (cumulant, mean)

        covariance, (cumulant, mean) = jax.jacfwd(first_order, has_aux=True)(jnp.stack([t, u]))
        return RowMoments(cumulant, mean, covariance)


def _logsumexp(values: Float[np.ndarray, "..."], axis: int) -> Float[np.ndarray, "..."]:
    """Log of the sum of exponentials along an axis, for which `values` are used up.

    scipy's, which is more general and makes copies, takes three times as long.
    """
    peak = values.max(axis=axis, keepdims=True)
    values -= peak
    return np.log(np.exp(values, out=values).sum(axis=axis)) + peak.squeeze(axis)


class _Keys(NamedTuple):
    """log G_n(z; w) + w / n of n keys, as splines in z at Chebyshev nodes of log(1 + w)."""

    z: Float[np.ndarray, " z"]
    log_density: Float[np.ndarray, "z w"]


class _Merger:
    """Builds G_n for one logit scale."""

    def __init__(self, logit_scale: float, resolution: float) -> None:
        self.scale = logit_scale
        # A spacing of 0.15 resolves the softplus, however broad the logits are.
        finest = 2 * WIDTHS * logit_scale / 0.15
        self.num_z = int(max(NODES["z"], finest) * resolution)
        self.num_eta = 2 * math.ceil(max(NODES["eta"], 2 * finest) * resolution / 2)
        self.nodes = chebpts1(int(NODES["w"] * resolution))
        self.series = np.linalg.inv(chebvander(self.nodes, len(self.nodes) - 1))
        self.at_zero = (chebvander([-1.0], len(self.nodes) - 1) @ self.series)[0]
        self.w = np.expm1((self.nodes + 1) / 2 * math.log1p(LARGEST_FIELD))
        self._known: dict[int, _Keys] = {1: self._single()}

    def _single(self) -> _Keys:
        z = np.linspace(-WIDTHS * self.scale, WIDTHS * self.scale, self.num_z)
        log_density = -0.5 * (z / self.scale) ** 2 - math.log(self.scale * math.sqrt(2 * math.pi))
        return _Keys(z, np.repeat(log_density[:, None], len(self.w), axis=1))

    def _grid(self, first: _Keys, second: _Keys, n: int) -> Float[np.ndarray, " z"]:
        """z from equal low logits to a broad sum with one huge key in it, within what the groups reach."""
        spread = min(math.sqrt(math.expm1(self.scale**2) / n), 1.0)
        low = math.log(n) - WIDTHS * self.scale / math.sqrt(n)
        typical = math.log(n) + self.scale**2 / 2 + math.log1p(WIDTHS * spread)
        high = np.logaddexp(typical, WIDTHS * self.scale)
        low = max(low, np.logaddexp(first.z[0], second.z[0]) + 0.1 * self.scale)
        high = min(high, np.logaddexp(first.z[-1], second.z[-1]) - 0.1 * self.scale)
        return np.linspace(low, high, self.num_z)

    def keys(self, n: int) -> _Keys:
        if n not in self._known:
            self._known[n] = self._merge(n // 2, n - n // 2)
        return self._known[n]

    def _merge(self, a: int, b: int) -> _Keys:
        n, first, second = a + b, self.keys(a), self.keys(b)
        z = self._grid(first, second, n)
        # At large w the shares must balance: nodes are dense there.
        balance, bend = math.log(b / a), max(0.5 / math.sqrt(1 + LARGEST_FIELD / n), 1e-3)
        reach = first.z[-1] - second.z[0] + balance, second.z[-1] - first.z[0] - balance
        r = np.linspace(-math.asinh(reach[0] / bend), math.asinh(reach[1] / bend), self.num_eta)
        step = r[1] - r[0]
        if a == b:
            # Equal groups: the integrand is even in eta.
            r, step = r[len(r) // 2 :], 2 * step
        eta = balance + bend * np.sinh(r)
        share = expit(eta)
        log_weight = np.log(bend * np.cosh(r) * step)
        integrand = self._at(first, z + log_expit(-eta)[:, None], (1 - share) ** 2)
        integrand += self._at(second, z + log_expit(eta)[:, None], share**2)
        integrand += (log_weight[:, None] - self.w * ((share - b / n) ** 2 * n / (a * b))[:, None])[:, None]
        log_density = _logsumexp(integrand, axis=0)
        # The law of z itself (w = 0) is normalised; errors in that would double at every level.
        law = log_density @ self.at_zero
        return _Keys(z, log_density - np.logaddexp.reduce(law) - math.log(z[1] - z[0]))

    def _at(
        self, keys: _Keys, z: Float[np.ndarray, "eta z"], factor: Float[np.ndarray, " eta"]
    ) -> Float[np.ndarray, "eta z w"]:
        """log_density at z, and at w times a factor; minus infinity beyond the grid, where it is negligible."""
        spline = make_interp_spline(keys.z, keys.log_density, k=5)
        inside = (z >= keys.z[0]) & (z <= keys.z[-1])
        basis = BSpline.design_matrix(np.clip(z, keys.z[0], keys.z[-1]).ravel(), spline.t, 5)
        in_z = (basis @ spline.c).reshape(*z.shape, -1)
        at = 2 * np.log1p(self.w * factor[:, None]) / math.log1p(LARGEST_FIELD) - 1
        in_w = chebvander(at, len(self.nodes) - 1) @ self.series
        values = in_z @ in_w.swapaxes(1, 2)
        values[~inside] = -np.inf
        return values

    def pieces(self, n: int, log_odds: Float[np.ndarray, " xi"]) -> Float[np.ndarray, "order interval xi"]:
        """log H(xi; w) + w / n as a spline in log(1 + w)."""
        z, log_density = self.keys(n)
        fine = np.linspace(z[0], z[-1], 4 * len(z))
        values = make_interp_spline(z, log_density, k=5)(fine)
        standard = (log_odds[:, None] + fine) / self.scale
        log_normal = -0.5 * standard**2 - math.log(self.scale * math.sqrt(2 * math.pi)) + math.log(fine[1] - fine[0])
        at_nodes = np.stack([_logsumexp(log_normal + values[:, i], axis=1) for i in range(len(self.w))])
        even = np.linspace(0.0, 1.0, max(NODES["w"], len(self.nodes)) + 1)
        at_even = chebvander(2 * even - 1, len(self.nodes) - 1) @ self.series @ at_nodes
        spline = make_interp_spline(np.arange(len(even)), at_even, k=5)
        starts = np.arange(len(even) - 1)
        return np.stack([spline(starts, order) / math.factorial(order) for order in range(5, -1, -1)])


@lru_cache(maxsize=64)
def row_law(length: int, logit_scale: float, resolution: float = 1.0, causal: bool = False) -> RowLaw:
    """The law of a row of softmax attention with i.i.d. logits.

    Parameters
    ----------
    length: keys L; on the ring every row sees all of them, in the causal task rows see 2, 3, ..., L.
    logit_scale: sigma_s.
    resolution: multiplies the density of nodes in every direction; comparing two resolutions gives the error.
    causal: whether rows differ as in the causal task; the law is then the mean over its rows.
    """
    every = np.arange(1, length) if causal else np.array([length - 1])
    kinds, share = every, np.full(len(every), 1 / len(every))
    if len(every) > MOST_ROWS:
        kinds = np.unique(np.round(np.geomspace(1, length - 1, MOST_ROWS)).astype(int))
        share = make_interp_spline(np.log(kinds), np.eye(len(kinds)), k=3)(np.log(every)).mean(axis=0)
    merger = _Merger(logit_scale, resolution)
    log_odds, tables = [], []
    for n in kinds.tolist():
        low = -math.log(n) - logit_scale**2 / 2 - WIDTHS * logit_scale
        # A coarse grid has as many nodes but goes further, so that nothing is compiled anew for it.
        high = low + (LARGEST_LOG_ODDS - low) / min(resolution, 1.0)
        log_odds.append(np.linspace(low, high, int(NODES["xi"] * max(resolution, 1.0))))
        tables.append(merger.pieces(n, log_odds[-1]))
    return RowLaw(share, kinds.astype(float), np.stack(log_odds), np.stack(tables))
