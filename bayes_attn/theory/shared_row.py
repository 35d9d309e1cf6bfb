"""Softmax attention whose rows share one set of logits (the prior RelativeBias): the exact law at finite size.

There is a single row, so no large number of rows justifies a saddle point. But with i.i.d. uniform tokens the
likelihood is a mixture of exponentials in the participation (the noncentral chi-square's generating function),

    exp(-U(m, q)) = exp(c / 2) E exp(-alpha q Y / 2),    Y ~ chi^2 with V (V - 1) degrees and noncentrality
    c = V (V - 1) (alpha m / sigma_w)^2,

and the row law's table H(xi; w) (`row_law`) is exactly what that asks for:

    p(xi) ~ exp(c / 2) int dY f(Y) exp(-alpha Y x^2 / 2) H(xi; alpha Y (1 - x)^2 / 2),      x = m = sigmoid(xi).
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.interpolate import RectBivariateSpline
from scipy.optimize import root_scalar
from scipy.special import expit, ive, logsumexp

from bayes_attn.errors import require
from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.action import Density
from bayes_attn.theory.coexistence import Coexistence
from bayes_attn.theory.row_law import LARGEST_FIELD, RowLaw
from bayes_attn.theory.softmax import resolved

SEARCH = np.geomspace(0.04, 200.0, 96)
"""Loads at which the law is computed, in units of one that pays for copying (`_scale`)."""
SMALLEST_BESSEL = 1e-250
WINDOWS, NODES = 3, 48
"""The integral over Y: how often its window closes in, and its nodes."""
LOG_NEGLIGIBLE = 30.0


class ExactLaw(NamedTuple):
    """The law of the copy mass over log-odds xi of m, at one load."""

    log_odds: Float[np.ndarray, " xi"]
    log_density: Float[np.ndarray, " xi"]
    """Of m, per unit of m, not normalised."""
    participation: Float[np.ndarray, " xi"]
    """Mean of q given m."""

    @property
    def copy_mass(self) -> Float[np.ndarray, " xi"]:
        return expit(self.log_odds)


def log_bessel(order: float, argument: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """log I_order(argument) without overflow; beyond the range of doubles by Olver's uniform expansion (DLMF 10.41)."""
    with np.errstate(divide="ignore", under="ignore"):
        scaled = ive(order, argument)
        direct = np.log(scaled) + argument
    if np.all(scaled > SMALLEST_BESSEL):
        return direct
    z = argument / order
    root = np.sqrt(1 + z**2)
    p = 1 / root
    first = (3 * p - 5 * p**3) / 24
    second = (81 * p**2 - 462 * p**4 + 385 * p**6) / 1152
    eta = root + np.log(z / (1 + root))
    uniform = order * eta - 0.5 * np.log(2 * np.pi * order * root) + np.log1p(first / order + second / order**2)
    return np.where(scaled > SMALLEST_BESSEL, direct, uniform)


def _specified(posterior: CopyPosterior, resolution: float) -> RowLaw:
    spec, law = resolved(posterior, resolution, shared=True)
    uniform = len(spec.action.frequency) == 1
    p = posterior.task.token_frequencies
    spread = f"{p.min():.3g} ... {p.max():.3g}"
    require(uniform, "theory", "frequencies", "must be uniform with the prior RelativeBias", spread)
    return law


def exact_law(posterior: CopyPosterior, load: float, field: float = 0.0, resolution: float = 1.0) -> ExactLaw:
    """The exact law of the copy mass at a load and a field, which adds L h m to the log-density.

    Raises
    ------
    InvalidInput: the prior is not RelativeBias, tokens are not uniform, or there is no theory for the posterior.
    ArithmeticError: the law of a row is not resolved, or not tabulated far enough for the load.
    """
    law = _specified(posterior, resolution)
    vocab, scale = posterior.task.vocab, posterior.value_scale
    xi, pieces, others = law.log_odds[0], law.pieces[0], float(law.others[0])
    copied, rest = expit(xi), expit(-xi)
    load = max(load, 1e-9)
    degrees = vocab * (vocab - 1)
    noncentrality = degrees * (load * copied / scale) ** 2
    least = copied**2 + rest**2 / others

    per_unit = pieces.shape[1] / math.log1p(LARGEST_FIELD)
    slopes = pieces[:-1] * np.arange(5, 0, -1)[:, None, None]

    def table(w: Float[np.ndarray, "xi node"]) -> tuple[Float[np.ndarray, "xi node"], Float[np.ndarray, "xi node"]]:
        """log H(xi; w) + w / n and its derivative by w."""
        at = np.log1p(w) * per_unit
        interval = np.clip(at.astype(int), 0, pieces.shape[1] - 1)
        index = interval, np.arange(len(xi))[:, None]
        value = np.polyval(pieces[:, *index], at - interval)
        return value, np.polyval(slopes[:, *index], at - interval) * per_unit / (1 + w)

    def log_weight(
        log_y: Float[np.ndarray, "xi node"],
    ) -> tuple[Float[np.ndarray, "xi node"], Float[np.ndarray, "xi node"]]:
        """log of Y f(Y) exp(c / 2) exp(-alpha Y x^2 / 2) H, and the mean participation among the other keys given Y."""
        y, order = np.exp(log_y), degrees / 2 - 1
        argument = np.sqrt(noncentrality[:, None] * y)
        mixture = -0.5 * y + 0.5 * order * (log_y - np.log(noncentrality)[:, None]) + log_bessel(order, argument)
        value, slope = table(0.5 * load * y * rest[:, None] ** 2)
        return log_y + mixture - 0.5 * load * y * least[:, None] + value, 1 / others - slope

    tail = max(9 * math.sqrt(2 / degrees), 40 / degrees)
    low = np.full_like(xi, math.log(degrees / (1 + load)) - tail)
    high = 2 * np.log(math.sqrt(degrees) + np.sqrt(noncentrality) + 9)
    for window in range(WINDOWS):
        step = (high - low) / (NODES - 1)
        log_y = low[:, None] + step[:, None] * np.arange(NODES)
        weight, among_others = log_weight(log_y)
        if window < WINDOWS - 1:
            alive = weight > weight.max(axis=1, keepdims=True) - LOG_NEGLIGIBLE
            first, last = alive.argmax(axis=1), NODES - 1 - alive[:, ::-1].argmax(axis=1)
            low, high = low + step * np.maximum(first - 1, 0), low + step * np.minimum(last + 1, NODES - 1)
    log_total = np.asarray(logsumexp(weight, axis=1))
    log_density = log_total + np.log(step)
    matters = (weight > weight.max(axis=1, keepdims=True) - LOG_NEGLIGIBLE) & (rest > 1e-3)[:, None]
    if np.max(np.where(matters, 0.5 * load * np.exp(log_y) * rest[:, None] ** 2, 0.0)) > LARGEST_FIELD:
        raise ArithmeticError(f"the law of a row is not tabulated far enough for load {load:.4g}")
    share = np.exp(weight - log_total[:, None])
    participation = copied**2 + rest**2 * np.sum(share * among_others, axis=1)
    per_copy_mass = log_density - np.log(copied * rest) + posterior.size * field * copied
    return ExactLaw(xi, per_copy_mass, participation)


def density(posterior: CopyPosterior, load: float, resolution: float = 1.0) -> Density:
    """p(m), exact. Raises as `exact_law`."""
    law = exact_law(posterior, load, resolution=resolution)
    m = law.copy_mass
    log_density = law.log_density - law.log_density.max()
    inside = log_density > -LOG_NEGLIGIBLE
    probability = np.exp(log_density[inside])
    return Density(m[inside], probability / np.trapezoid(probability, m[inside]))


class _Surface(NamedTuple):
    """The exact law over (log load, log-odds of m)."""

    loads: Float[np.ndarray, " load"]
    log_odds: Float[np.ndarray, " fine"]
    log_density: RectBivariateSpline
    participation: RectBivariateSpline

    def extrema(self, log_load: float) -> Float[np.ndarray, " extremum"]:
        """Log-odds of the peaks and valleys of p(m), in order; the first and the last are peaks."""
        slope = self.log_density(log_load, self.log_odds, dy=1)[0]
        at = np.flatnonzero(np.diff(np.sign(slope)))
        fraction = slope[at] / (slope[at] - slope[at + 1])
        return self.log_odds[at] + fraction * (self.log_odds[at + 1] - self.log_odds[at])

    def copy_weight(self, log_load: float) -> float:
        """Share of the density above the first valley."""
        height = self.log_density(log_load, self.log_odds)[0]
        weight = np.exp(height - height.max()) * expit(self.log_odds) * expit(-self.log_odds)
        return float(weight[self.log_odds > self.extrema(log_load)[1]].sum() / weight.sum())

    def mean_copy_mass(self, log_load: float) -> float:
        height = self.log_density(log_load, self.log_odds)[0]
        weight = np.exp(height - height.max()) * expit(self.log_odds) * expit(-self.log_odds)
        return float((weight * expit(self.log_odds)).sum() / weight.sum())


def _surface(posterior: CopyPosterior, field: float, resolution: float) -> _Surface:
    loads = SEARCH * _scale(posterior)
    laws = [exact_law(posterior, float(load), field, resolution) for load in loads]
    xi = laws[0].log_odds
    values = [np.stack([getattr(law, name) for law in laws]) for name in ("log_density", "participation")]
    splines = [RectBivariateSpline(np.log(loads), xi, value, kx=3, ky=5, s=0) for value in values]
    # Away from the ends, where m is 0 or 1 to many digits.
    fine = np.linspace(-math.log(posterior.task.length) - 6.0, min(8.0, xi[-1] - 1.0), 3_000)
    return _Surface(loads, fine, *splines)


def find(posterior: CopyPosterior, field: float = 0.0, resolution: float = 1.0) -> tuple[Coexistence | None, float]:
    """Two peaks of p(m) along the load, and the load about which the rise of the mean copy mass centres.

    They coexist where they weigh the same; spinodals are the smallest and the largest load with two peaks, (m, q) those
    of the peaks, and the barrier goes from the lower peak of log p(m) down to the valley.

    Raises as `exact_law`, and ArithmeticError if the loads searched do not span the rise.
    """
    surface = _surface(posterior, field, resolution)
    log_loads = np.log(surface.loads)
    two = np.array([len(surface.extrema(at)) > 1 for at in log_loads])
    rise = np.gradient([surface.mean_copy_mass(at) for at in log_loads], surface.loads)
    steepest = float(surface.loads[np.argmax(rise)])
    if two[0] or two[-1]:
        raise ArithmeticError(
            f"two phases are left at an end of the loads {surface.loads[0]:.3g} ... {surface.loads[-1]:.3g}"
        )
    if not two.any():
        return None, steepest
    first, last = np.flatnonzero(two)[[0, -1]]

    def border(outside: float, inside: float) -> float:
        for _ in range(40):
            middle = 0.5 * (outside + inside)
            outside, inside = (outside, middle) if len(surface.extrema(middle)) > 1 else (middle, inside)
        return inside

    low = border(float(log_loads[first - 1]), float(log_loads[first]))
    high = border(float(log_loads[last + 1]), float(log_loads[last]))
    if not surface.copy_weight(low) < 0.5 < surface.copy_weight(high):
        return None, steepest
    critical = root_scalar(lambda at: surface.copy_weight(at) - 0.5, bracket=(low, high), xtol=1e-10).root
    peaks = surface.extrema(critical)
    height = surface.log_density(critical, peaks)[0]
    q = surface.participation(critical, peaks)[0]
    m = expit(peaks)
    found = Coexistence(
        critical=float(np.exp(critical)),
        spinodal_low=float(np.exp(low)),
        spinodal_high=float(np.exp(high)),
        barrier=float(min(height[0], height[2]) - height[1]),
        disordered=(float(m[0]), float(q[0])),
        copied=(float(m[2]), float(q[2])),
        copy_mass_barrier=float(m[1]),
    )
    return found, found.critical


def _scale(posterior: CopyPosterior) -> float:
    """A load at which the data pay for a logit that copies half of the mass."""
    degrees = posterior.task.vocab * (posterior.task.vocab - 1)
    logit = math.log(posterior.task.length) + 1
    return 2 * logit * posterior.value_scale / (posterior.logit_scale * math.sqrt(degrees))
