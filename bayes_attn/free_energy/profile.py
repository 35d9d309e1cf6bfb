"""The profile F(m) = -log p(m) of the (first) order parameter at any controls, with error bands, peaks and valley.

The samples of all rungs, reweighted (`pool`), are counted in bins that are narrow where a phase is narrow. A cubic
spline is fitted to the log-density by the likelihood of the counts (Poisson, each bin with its own effective number of
samples): bins that are nearly empty count for what they are. No kernel widens the phases, so that the valley between
them is not filled up; one that is sharper than the bins is rounded, which makes it shallower, never deeper.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.interpolate import BSpline
from scipy.sparse import csr_array
from scipy.special import xlogy

from bayes_attn.free_energy.pool import Pool

BIN_WIDTH = 0.25
"""In standard deviations of the phase at hand."""
BINS_PER_KNOT = (6, 4, 3, 2)
"""Of the spline; the one with the least value of Akaike's criterion is taken."""
LEAST_EFFECTIVE = 8.0
"""Effective samples: fewer are not shown as a bin, and do not begin or end a profile."""
LEAST_UNEVEN = 40.0
"""Effective samples that a stretch of the valley takes where they are less than `EVEN` of its samples. Few large
weights make a deep valley too deep by more than the error tells (L = 32, V = 16 with 35: 0.4 of 13.1 kT, against the
theory and against sampling in windows of m)."""
EVEN = 0.25
VALLEY_BINS = 6
"""Of such a stretch."""
GRID = 600
QUANTILES = 4000
STIFFNESS = 1e-2
"""Of the second differences of the spline's coefficients: what joins both sides of empty bins."""


@dataclass(frozen=True)
class Profile:
    """-log p(m) at one point of control space, for |m| where m has both signs; energies in kT."""

    copy_mass: Float[np.ndarray, " grid"]
    free_energy: Float[np.ndarray, " grid"]
    """-log p(m), with p normalised over the grid."""
    error: Float[np.ndarray, " grid"]
    bin_copy_mass: Float[np.ndarray, " bin"]
    """Centres of the bins that the curve was drawn through."""
    bin_free_energy: Float[np.ndarray, " bin"]
    bin_error: Float[np.ndarray, " bin"]
    peaks: tuple[float, float] | None
    """Positions of the two peaks with the deepest valley between them; None for a single peak."""
    peak_errors: tuple[float, float] | None
    valley: float | None
    """Position of the deepest point between them."""
    depth: float
    """ln(lower peak / valley), in kT; 0 for a single peak."""
    depth_error: float
    log_odds: float
    """Log of the weight above the valley over the weight below; NaN for a single peak."""
    log_odds_error: float
    height_difference: float
    """Log of the upper peak's height over the lower one's; NaN for a single peak."""
    height_difference_error: float


@dataclass(frozen=True)
class Curves:
    """One profile for every replicate, from which errors and roots are taken."""

    grid: Float[np.ndarray, " grid"]
    log_density: Float[np.ndarray, "replicate grid"]
    bins: Float[np.ndarray, " bin"]
    bin_log_density: Float[np.ndarray, "replicate bin"]
    peaks: Int[np.ndarray, " two"] | None
    """Indices in the grid, of the whole sample's curve."""
    valley: int
    resolved: bool
    """Whether there are samples enough all the way between the peaks."""

    def depth(self) -> Float[np.ndarray, " replicate"]:
        """ln(lower peak / valley) of every replicate, in its own extrema about the common valley; 0 for one peak."""
        if self.peaks is None:
            return np.zeros(len(self.log_density))
        low, high, valley = self.extrema()
        return np.minimum(low, high) - valley

    def height_difference(self) -> Float[np.ndarray, " replicate"]:
        low, high, _ = self.extrema()
        return high - low

    def log_odds(self) -> Float[np.ndarray, " replicate"]:
        """Of the weight above the common valley."""
        step = np.gradient(self.grid)
        peak = self.log_density.max(axis=1, keepdims=True)
        weight = np.exp(self.log_density - peak) * step
        return np.log(weight[:, self.valley :].sum(axis=1)) - np.log(weight[:, : self.valley].sum(axis=1))

    def extrema(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Heights of both peaks and of the valley between them, for every replicate."""
        assert self.peaks is not None
        low, high = (self.log_density[:, side].max(axis=1) for side in self._sides())
        between = self.log_density[:, self.peaks[0] : self.peaks[1] + 1].min(axis=1)
        return low, high, between

    def peak_positions(self) -> Float[np.ndarray, "replicate two"]:
        """Of both peaks, for every replicate: the vertex of the parabola through the three highest points in a row."""
        every, found = np.arange(len(self.log_density)), []
        for side in self._sides():
            top = side.start + np.argmax(self.log_density[:, side], axis=1)
            before, at, after = (self.log_density[every, np.clip(top + by, 0, len(self.grid) - 1)] for by in (-1, 0, 1))
            bend = 2 * at - before - after
            # At an end of the curve the peak is the end itself.
            inside = (top > 0) & (top < len(self.grid) - 1) & (bend > 0)
            shift = np.where(inside, 0.5 * (after - before) / np.where(inside, bend, 1.0), 0.0)
            found.append(self.grid[top] + shift * (self.grid[1] - self.grid[0]))
        return np.stack(found, axis=1)

    def _sides(self) -> tuple[slice, slice]:
        """Where each replicate's peaks are looked for: from an end of the curve to the middle of peak and valley."""
        assert self.peaks is not None
        low_end, high_start = (self.peaks[0] + self.valley) // 2, (self.peaks[1] + self.valley + 1) // 2
        return slice(0, low_end + 1), slice(high_start, len(self.grid))


def magnitudes(pool: Pool) -> Float[np.ndarray, " sample"]:
    """The order parameter, or its magnitude where it has both signs: m and -m are then one phase."""
    return np.abs(pool.order) if np.any(pool.order < 0) else pool.order


def resampled(order: Float[np.ndarray, " sample"], weights: Float[np.ndarray, " sample"]) -> Float[np.ndarray, " draw"]:
    """Equally likely values, at the quantiles of a weighted sample, in increasing order."""
    increasing = np.argsort(order)
    cumulative = np.cumsum(weights[increasing])
    at = np.searchsorted(cumulative, (np.arange(QUANTILES) + 0.5) / QUANTILES * cumulative[-1])
    return order[increasing][at]


def bin_edges(
    order: Float[np.ndarray, " sample"], drawn: Float[np.ndarray, " draw"], cut: float
) -> Float[np.ndarray, " edge"]:
    """Edges over all of `order`, whose spacing follows the spread of the phase at hand.

    `drawn` is a sample where both phases have weight, and the `cut` lies between them.
    """
    sides = [drawn[drawn <= cut], drawn[drawn > cut]]
    centres = [side.mean() for side in sides]
    widths = [max(float(side.std()), 1e-3 * float(np.ptp(drawn))) for side in sides]
    edges = [float(order.min())]
    while edges[-1] <= order.max():
        width = np.exp(np.interp(edges[-1], centres, np.log(widths)))
        edges.append(edges[-1] + BIN_WIDTH * float(width))
    return np.array(edges)


def curves(pool: Pool, log_tilt: Float[np.ndarray, " sample"], edges: Float[np.ndarray, " edge"]) -> Curves | None:
    """The profile of every replicate at one point; None where too few samples reach it."""
    bins = _counted(pool, log_tilt, edges)
    if bins is None:
        return None
    good = np.flatnonzero(bins.effective >= LEAST_EFFECTIVE)
    # log of a count is biased by -1 / (2 n).
    with np.errstate(divide="ignore"):
        heights = np.log(bins.weight[:, good] / bins.width[good]) + 0.5 / bins.effective[good]
    inflation = max(1.0, float(np.median(pool.error(heights) ** 2 * bins.effective[good])))
    grid = np.linspace(bins.centre[0], bins.centre[-1], GRID)
    log_density = _fitted(
        bins.centre, bins.weight * bins.per_weight, bins.width * bins.per_weight, inflation, grid
    )  # fmt: skip
    total = np.log(np.trapezoid(np.exp(log_density), grid, axis=1))[:, None]
    log_density, heights = log_density - total, heights - total
    peaks, valley = _deepest(log_density[0])
    resolved = True
    if peaks is not None:
        left, right = np.searchsorted(bins.centre, grid[peaks])
        resolved = _is_resolved(bins.effective[left : right + 1], bins.samples[left : right + 1])
    return Curves(grid, log_density, bins.centre[good], heights, peaks, valley, resolved)


class _Bins(NamedTuple):
    """Weighted samples in bins, from the first to the last one that holds enough of them."""

    centre: Float[np.ndarray, " bin"]
    width: Float[np.ndarray, " bin"]
    weight: Float[np.ndarray, "replicate bin"]
    """Adds up to 1 over all bins, also those left out."""
    samples: Int[np.ndarray, " bin"]
    effective: Float[np.ndarray, " bin"]
    """Effective number of samples."""
    per_weight: Float[np.ndarray, " bin"]
    """Samples that a unit of weight stands for; between its neighbours where a bin has none."""


def _counted(pool: Pool, log_tilt: Float[np.ndarray, " sample"], edges: Float[np.ndarray, " edge"]) -> _Bins | None:
    """None where too few bins hold enough."""
    order, number_of_bins = magnitudes(pool), len(edges) - 1
    number = np.clip(np.searchsorted(edges, order, side="right") - 1, 0, number_of_bins - 1)
    weights = pool.whole_weights(log_tilt)
    weight = pool.relative @ csr_array((weights, (np.arange(len(order)), number)), shape=(len(order), number_of_bins))
    weight /= weight.sum(axis=1, keepdims=True)
    squares, samples = np.bincount(number, weights**2, number_of_bins), np.bincount(number, minlength=number_of_bins)
    met = squares > 0
    effective = np.where(met, weight[0] ** 2 / np.where(met, squares, 1.0), 0.0)
    good = np.flatnonzero(effective >= LEAST_EFFECTIVE)
    if len(good) < 2 * BINS_PER_KNOT[0]:
        return None
    centre = (edges[:-1] + edges[1:]) / 2
    per_weight = np.exp(np.interp(centre, centre[met], np.log(weight[0][met] / squares[met])))
    inside = slice(good[0], good[-1] + 1)
    return _Bins(
        centre[inside], np.diff(edges)[inside], weight[:, inside], samples[inside], effective[inside],
        per_weight[inside],
    )  # fmt: skip


def _is_resolved(effective: Float[np.ndarray, " bin"], samples: Int[np.ndarray, " bin"]) -> bool:
    """Whether every stretch of bins from one peak to the other holds enough samples (`LEAST_UNEVEN`)."""
    stretch = np.ones(min(VALLEY_BINS, len(effective)))
    known, all_ = (np.convolve(numbers, stretch, mode="valid") for numbers in (effective, samples))
    return bool(np.all((known >= LEAST_EFFECTIVE) & ((known >= LEAST_UNEVEN) | (known >= EVEN * all_))))


def _fitted(
    at: Float[np.ndarray, " bin"],
    numbers: Float[np.ndarray, "replicate bin"],
    exposure: Float[np.ndarray, " bin"],
    inflation: float,
    grid: Float[np.ndarray, " grid"],
) -> Float[np.ndarray, "replicate grid"]:
    """The log-density of every replicate: a cubic spline by penalised Poisson likelihood.

    `inflation`: of the counts' variances, by the samples' memory; Akaike's criterion is taken of that many fewer.
    """
    fits = []
    for every in BINS_PER_KNOT:
        knots = np.concatenate([np.repeat(at[0], 4), at[every : -every + 1 : every], np.repeat(at[-1], 4)])
        design = BSpline.design_matrix(at, knots, 3).toarray()
        start = np.linalg.lstsq(design, np.log((numbers[0] + 0.5) / exposure), rcond=None)[0]
        best = _newton(design, numbers[:1], exposure, start[None], steps=20)
        expected = exposure * np.exp(design @ best[0])
        deviance = 2 * float(np.sum(xlogy(numbers[0], numbers[0] / expected) - numbers[0] + expected))
        fits.append((deviance / inflation + 2 * design.shape[1], knots, design, best))
    _, knots, design, best = min(fits, key=lambda fit: fit[0])
    coefficients = _newton(design, numbers, exposure, np.repeat(best, len(numbers), axis=0), steps=5)
    return coefficients @ BSpline.design_matrix(grid, knots, 3).toarray().T


def _newton(
    design: Float[np.ndarray, "bin coefficient"],
    numbers: Float[np.ndarray, "replicate bin"],
    exposure: Float[np.ndarray, " bin"],
    start: Float[np.ndarray, "replicate coefficient"],
    steps: int,
) -> Float[np.ndarray, "replicate coefficient"]:
    """Coefficients after some Newton steps, none of which changes a logarithm by more than 2."""
    bend = np.diff(np.eye(design.shape[1]), n=2, axis=0)
    stiff, found = STIFFNESS * bend.T @ bend, start
    for _ in range(steps):
        expected = exposure * np.exp(found @ design.T)
        gradient = (numbers - expected) @ design - found @ stiff
        curvature = (expected[:, None, :] * design.T) @ design + stiff + 1e-9 * np.eye(len(stiff))
        step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        most = np.abs(step @ design.T).max(axis=1, keepdims=True)
        found = found + step * np.minimum(1.0, 2.0 / np.maximum(most, 1e-300))
    return found


def _deepest(log_density: Float[np.ndarray, " grid"]) -> tuple[Int[np.ndarray, " two"] | None, int]:
    """The two peaks with the deepest valley between them, and the valley; the ends count as peaks if they are."""
    padded = np.concatenate([[-np.inf], log_density, [-np.inf]])
    peaks = np.flatnonzero((padded[1:-1] > padded[:-2]) & (padded[1:-1] >= padded[2:]))
    best: tuple[np.ndarray | None, int] = (None, 0)
    depth = 0.0
    for i, left in enumerate(peaks):
        for right in peaks[i + 1 :]:
            valley = left + int(np.argmin(log_density[left : right + 1]))
            found = min(log_density[left], log_density[right]) - log_density[valley]
            if found > depth:
                best, depth = (np.array([left, right]), int(valley)), found
    return best


def summary(pool: Pool, found: Curves) -> Profile:
    """A profile with its errors."""
    two = found.peaks is not None
    nothing = np.full(len(found.log_density), np.nan)
    depth = found.depth()
    at = found.peak_positions() if two else np.full((len(found.log_density), 2), np.nan)
    (low, high), (low_error, high_error) = at[0].tolist(), pool.error(at).tolist()
    odds, heights = (found.log_odds(), found.height_difference()) if two else (nothing, nothing)
    return Profile(
        copy_mass=found.grid,
        free_energy=-found.log_density[0],
        error=pool.error(found.log_density),
        bin_copy_mass=found.bins,
        bin_free_energy=-found.bin_log_density[0],
        bin_error=pool.error(found.bin_log_density),
        peaks=(low, high) if two else None,
        peak_errors=(low_error, high_error) if two else None,
        valley=float(found.grid[found.valley]) if two else None,
        depth=float(depth[0]),
        depth_error=float(pool.error(depth)) if found.resolved else float("inf"),
        log_odds=float(odds[0]),
        log_odds_error=float(pool.error(odds)) if two else float("nan"),
        height_difference=float(heights[0]),
        height_difference_error=float(pool.error(heights)) if two else float("nan"),
    )
