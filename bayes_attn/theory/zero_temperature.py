"""The landscape that training by Adam sees: the joint density over logits and values, without entropy (section 8).

Full-batch training with the priors as decay minimises the joint negative log-density. Minimised over the value matrix,
it is a function of the logits alone. For softmax it is followed along the copy pattern, whose copied key lies s above
the others; as weights don't change when a row is shifted, the prior's cost is least where each row adds up to 0, which
is s^2 (1 - 1 / L) a row. For linear attention it is followed along the shift and the uniform matrix together.
"""

import math
from dataclasses import astuple, dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import make_interp_spline
from scipy.optimize import root_scalar

from bayes_attn.errors import require
from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.action import Action, specification

NODES = 4_000
"""Copy logits at which the stationary load is found."""


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """Where the minima of the zero-temperature landscape appear, exchange and vanish, as loads.

    None where there is a single minimum at every load. For linear attention the minimum moves away from m = 0
    continuously, at `critical_load`.
    """

    spinodal_low: float | None = None
    """The copy minimum appears: training that starts in the copy pattern keeps it from here on."""
    critical_load: float | None = None
    """Both minima are equally deep."""
    spinodal_high: float | None = None
    """The disordered minimum vanishes: training from scratch finds the copy pattern from here on."""
    copy_mass_disordered: float | None = None
    """Of the disordered minimum at equal depth."""
    copy_mass_copy: float | None = None
    """Of the copy minimum there."""
    relative_error: float = 0.0
    """Numerical, of all three loads: the largest relative change when the grid is refined; 0 where no grid is used."""


def _pattern(s: Float[Array, "*node"], length: int) -> tuple[Array, Array, Array, Array]:
    """m, q and their derivatives where the copied key's logit is s above the others'."""
    m = 1 / (1 + (length - 1) * jnp.exp(-s))
    q = m**2 + (1 - m) ** 2 / (length - 1)
    slope = m * (1 - m)
    return m, q, slope, 2 * slope * (m - (1 - m) / (length - 1))


def landscape(posterior: CopyPosterior) -> Landscape:
    """The landscape's special loads (theory, section 8).

    Along the pattern E(s) = -(signal part of U) + R s^2 (1 - 1 / L) / (2 sigma^2) for softmax, with R the independent
    rows. Every s > 0 is stationary at one load a(s); the spinodals are the extrema of a(s), and the depths are equal
    where E agrees on the outer branches. For linear attention the minimum leaves S = 0 where the signal's curvature
    outweighs the prior's along a mixture of the shift and the uniform matrix: row sums help to fit the tokens' mean.

    Raises
    ------
    InvalidInput: as `action.specification`, or the task is causal, whose rows have no common pattern.
    ArithmeticError: no load makes a pattern stationary.
    """
    with jax.enable_x64(True):
        if posterior.attention == "linear":
            spec = specification(posterior, "linear")
            return Landscape(critical_load=_linear(spec.action, spec.length, spec.standard_deviation))
        spec = specification(posterior, "softmax")
        require(not spec.causal, "theory.landscape", "causal", "must be False (rows of a causal task differ)", True)
        fine, coarse = (_softmax(spec.action, spec.length, spec.standard_deviation, n) for n in (NODES, NODES // 2))
        pairs = zip(astuple(fine)[:3], astuple(coarse)[:3], strict=True)
        changes = [abs(one / other - 1) for one, other in pairs if one is not None and other is not None]
        return replace(fine, relative_error=max(changes, default=0.0))


def _linear(action: Action, length: int, standard_deviation: float) -> float:
    def curvature(load: float) -> float:
        def energy(shares: jax.Array) -> jax.Array:
            shift, uniform = shares
            q = shift**2 + (2 * shift * uniform + uniform**2) / length
            _, signal = action.parts(load, shift + uniform / length, q, shift + uniform, (shift + uniform) ** 2)
            return 0.5 * length * q / standard_deviation**2 - signal

        return float(np.linalg.eigvalsh(jax.hessian(energy)(jnp.zeros(2)))[0])

    high = 1.0
    while curvature(high) > 0:
        high *= 2
    return root_scalar(curvature, bracket=(0.0, high), xtol=1e-13).root


@eqx.filter_jit
def _force(action: Action, load: Array, s: Array, length: int, standard_deviation: float) -> Float[Array, " node"]:
    """-dE/ds at each s, increasing in the load wherever it matters."""
    m, q, m_slope, q_slope = _pattern(s, length)
    by_m, by_q = jax.vmap(jax.grad(lambda a, x, y: action.parts(a, x, y)[1], argnums=(1, 2)))(load, m, q)
    return by_m * m_slope + by_q * q_slope - action.rows * (1 - 1 / length) * s / standard_deviation**2


def _softmax(action: Action, length: int, standard_deviation: float, nodes: int) -> Landscape:
    s = np.linspace(1e-4, math.log(length) + 7.0, nodes)

    def force(load: np.ndarray) -> np.ndarray:
        return np.asarray(_force(action, jnp.asarray(load), jnp.asarray(s), length, standard_deviation))

    low, high = np.zeros_like(s), np.full_like(s, 1.0)
    while np.any(short := force(high) < 0):
        if high.max() > 1e12:
            raise ArithmeticError("no load makes the copy pattern stationary")
        high = np.where(short, 2 * high, high)
    for _ in range(60):
        middle = 0.5 * (low + high)
        positive = force(middle) > 0
        low, high = np.where(positive, low, middle), np.where(positive, middle, high)
    load = make_interp_spline(s, 0.5 * (low + high), k=3)

    slope = load.derivative()
    changes = np.flatnonzero(np.diff(np.sign(slope(s))))
    if len(changes) < 2:
        return Landscape()
    top, bottom = (float(root_scalar(slope, bracket=(s[i], s[i + 1])).root) for i in changes[:2])

    def energy(at: float, value: float) -> float:
        m, q, _, _ = _pattern(jnp.asarray(at), length)
        _, signal = action.parts(value, m, q)
        return float(0.5 * action.rows * (1 - 1 / length) * at**2 / standard_deviation**2 - signal)

    def logit_at(value: float, start: float, end: float) -> float:
        return root_scalar(lambda x: float(load(x)) - value, bracket=(start, end)).root

    def difference(value: float) -> float:
        return energy(logit_at(value, bottom, s[-1]), value) - energy(logit_at(value, s[0], top), value)

    spinodal_low, spinodal_high = float(load(bottom)), float(load(top))
    margin = 1e-9 * (spinodal_high - spinodal_low)
    critical = root_scalar(difference, bracket=(spinodal_low + margin, spinodal_high - margin)).root
    ends = ((s[0], top), (bottom, s[-1]))
    disordered, copy = (float(_pattern(jnp.asarray(logit_at(critical, *end)), length)[0]) for end in ends)
    return Landscape(
        spinodal_low=spinodal_low,
        critical_load=critical,
        spinodal_high=spinodal_high,
        copy_mass_disordered=disordered,
        copy_mass_copy=copy,
    )
