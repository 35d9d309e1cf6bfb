"""The profile F(m) = -log p(m) of softmax attention at one load, and the barrier between its phases."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline

from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.softmax import log_densities


class AnalyticProfile(NamedTuple):
    """-log p(m) with fluctuations (theory, section 5), in kT, 0 at its lowest; wherever it is known."""

    copy_mass: Float[np.ndarray, " point"]
    free_energy: Float[np.ndarray, " point"]
    peaks: tuple[float, float] | None
    """Positions of the two highest peaks of p(m); None for a single one."""
    barrier: float | None
    """ln(peak / valley) in kT, the peak's height the geometric mean of both. Not the barrier of the saddle points alone
    that `transition` gives: fluctuations add to it, a third of a kT at L = V = 16."""


def profile(posterior: CopyPosterior, load: float) -> AnalyticProfile:
    """At one load.

    Raises
    ------
    InvalidInput: there is no such theory for the posterior.
    """
    ((m, log_density),) = log_densities(posterior, np.array([load]))
    free_energy = log_density.max() - log_density
    curve = CubicSpline(m, free_energy)
    flat = curve.derivative().roots(extrapolate=False)
    minima, maxima = flat[curve(flat, 2) > 0], flat[curve(flat, 2) < 0]
    if len(minima) < 2:
        return AnalyticProfile(m, free_energy, None, None)
    low, high = sorted(minima[np.argsort(curve(minima))[:2]].tolist())
    valley = float(curve(maxima[(maxima > low) & (maxima < high)]).max())
    return AnalyticProfile(m, free_energy, (low, high), valley - 0.5 * float(curve(low) + curve(high)))
