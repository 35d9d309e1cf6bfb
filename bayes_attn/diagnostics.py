"""Convergence, errors and storage of samples: the one module that imports arviz.

Arviz is imported inside the functions, because it takes seconds.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayes_attn.sampling import Samples

if TYPE_CHECKING:
    from xarray import DataTree


@dataclass(frozen=True)
class Estimate:
    """A mean over all chains with its standard error and convergence diagnostics."""

    mean: float
    error: float
    """Standard error: the larger of arviz's MCSE and the error of the mean of independent chains."""
    ess: float
    """Bulk effective sample size."""
    rhat: float
    """Rank-normalised split R-hat."""


def estimate(values: Float[np.ndarray, "chain scan"]) -> Estimate:
    """Mean of a scalar over chains and scans.

    A constant (such as the row sum of softmax attention) has error 0, the ESS of independent draws and R-hat 1.
    """
    import arviz as az

    chains, scans = values.shape
    if np.ptp(values) <= 1e-12 * max(1.0, abs(float(values.flat[0]))):
        return Estimate(float(values.flat[0]), 0.0, float(chains * scans), 1.0)
    between = float(values.mean(axis=1).std(ddof=1) / np.sqrt(chains)) if chains > 1 else 0.0
    within = float(az.mcse(values))
    return Estimate(float(values.mean()), max(within, between), float(az.ess(values)), float(az.rhat(values)))


def two_peaks(values: Float[np.ndarray, "chain scan"]) -> tuple[float, float]:
    """Depth of the valley between the two highest peaks of a density, ln(lower peak / valley), with its error.

    Returns (0, error) for a single peak. The density is arviz's kernel estimate; the error is that of the mean over
    chains, each treated alone.
    """
    import arviz as az

    def depth(sample: np.ndarray) -> float:
        _, density, _ = az.kde(sample)
        interior = (density[1:-1] > density[:-2]) & (density[1:-1] >= density[2:])
        peaks = np.flatnonzero(interior) + 1
        # A peak must hold up against the noise of a kernel estimate far in the tail.
        peaks = peaks[density[peaks] > 0.02 * density.max()]
        best = 0.0
        for i, left in enumerate(peaks):
            for right in peaks[i + 1 :]:
                valley = density[left : right + 1].min()
                best = max(best, float(np.log(min(density[left], density[right]) / max(valley, 1e-300))))
        return best

    depths = np.array([depth(chain) for chain in values])
    error = depths.std(ddof=1) / np.sqrt(len(depths)) if len(depths) > 1 else np.inf
    return depth(values.ravel()), float(error)


def to_datatree(samples: Samples, parameter: str, dims: list[str], coords: dict[str, np.ndarray]) -> "DataTree":
    """Samples of one path as an arviz DataTree.

    Groups: `posterior` (the parameters, named `parameter` with dimensions (chain, draw, load, *dims), and the order
    parameters at the same draws), `sample_stats` (lp, acceptance_rate, diverging, replica), and `every_scan` (order
    parameters, lp and swap acceptance at every scan, dimensions (chain, scan, load) and (chain, scan, pair)).
    """
    import arviz as az

    thin = samples.schedule.thin
    names = samples.order_parameters._fields
    order = dict(zip(names, samples.order_parameters, strict=True))
    at_draws = slice(thin - 1, None, thin)
    load = np.asarray(samples.path.load)
    stats = {
        "lp": samples.log_density,
        "acceptance_rate": samples.acceptance,
        "diverging": samples.divergent,
        "replica": samples.replica_at,
    }
    tree = az.from_dict(
        {
            "posterior": {parameter: samples.params} | {name: values[:, at_draws] for name, values in order.items()},
            "sample_stats": {name: values[:, at_draws] for name, values in stats.items()},
        },
        coords={"load": load} | coords,
        dims={name: ["load"] for name in [*order, *stats]} | {parameter: ["load", *dims]},
    )
    every = {name: (("chain", "scan", "load"), values.astype(np.float32)) for name, values in order.items()}
    every["lp"] = (("chain", "scan", "load"), samples.log_density)
    every["swap_acceptance"] = (("chain", "scan", "pair"), samples.swap_acceptance.astype(np.float32))
    # The groups share the coordinates of the chains and loads.
    tree["every_scan"] = xr.DataTree(
        xr.Dataset(every, coords={"chain": np.arange(len(samples.log_density)), "load": load})
    )
    return tree
