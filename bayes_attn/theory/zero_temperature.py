"""The landscape that training by Adam sees: the joint density over logits and values, without entropy (section 8).

Full-batch training with the priors as decay minimises the joint negative log-density. Minimised over the value matrix,
it is a function of the logits alone. For softmax it is followed along the copy pattern, a logit s on the copied key and
0 elsewhere; for linear attention along S = m times the shift.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.interpolate import make_interp_spline
from scipy.optimize import root_scalar

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


def _pattern(s: Float[np.ndarray, " node"], length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """m, q and their derivatives for a logit s on the copied key."""
    m = 1 / (1 + (length - 1) * np.exp(-s))
    q = m**2 + (1 - m) ** 2 / (length - 1)
    slope = m * (1 - m)
    return m, q, slope, 2 * slope * (m - (1 - m) / (length - 1))


def landscape(posterior: CopyPosterior) -> Landscape:
    """The landscape's special loads (theory, section 8).

    Along the pattern E(s) = -1/2 V (V-1) (a / w)^2 m^2 / (1 + a q) + L s^2 / (2 sigma^2) for softmax. Every s > 0 is
    stationary at one load a(s); the spinodals are the extrema of a(s), and the depths are equal where E agrees on the
    outer branches. Raises InvalidInput where `action.specification` does.
    """
    if posterior.attention == "linear":
        action, standard_deviation = specification(posterior, "linear")
        logit_scale = standard_deviation * math.sqrt(action.length)
        pairs = action.vocab * (action.vocab - 1)
        return Landscape(critical_load=action.length * action.value_scale / (logit_scale * math.sqrt(pairs)))
    action, logit_scale = specification(posterior, "softmax")
    return _softmax(action, logit_scale)


def _softmax(action: Action, logit_scale: float) -> Landscape:
    length, strength = action.length, 0.5 * action.vocab * (action.vocab - 1) / action.value_scale**2
    s = np.linspace(1e-4, math.log(length) + 7.0, NODES)
    m, q, m_slope, q_slope = _pattern(s, length)

    def force(load: np.ndarray) -> np.ndarray:
        """-dE/ds, increasing in the load wherever it matters."""
        growth = 1 + load * q
        gain = load**2 * (2 * m * m_slope * growth - m**2 * load * q_slope) / growth**2
        return strength * gain - length * s / logit_scale**2

    low, high = np.zeros_like(s), np.full_like(s, 1.0)
    while np.any(short := force(high) < 0) and high.max() < 1e12:
        high = np.where(short, 2 * high, high)
    for _ in range(100):
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
        m, q, _, _ = _pattern(np.array([at]), length)
        return float(-strength * value**2 * m[0] ** 2 / (1 + value * q[0]) + length * at**2 / (2 * logit_scale**2))

    def logit_at(value: float, start: float, end: float) -> float:
        return root_scalar(lambda x: float(load(x)) - value, bracket=(start, end)).root

    def difference(value: float) -> float:
        return energy(logit_at(value, bottom, s[-1]), value) - energy(logit_at(value, s[0], top), value)

    spinodal_low, spinodal_high = float(load(bottom)), float(load(top))
    margin = 1e-9 * (spinodal_high - spinodal_low)
    critical = root_scalar(difference, bracket=(spinodal_low + margin, spinodal_high - margin)).root
    return Landscape(spinodal_low=spinodal_low, critical_load=critical, spinodal_high=spinodal_high)
