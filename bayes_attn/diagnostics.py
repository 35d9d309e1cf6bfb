"""Convergence, errors and storage of samples: the one module that imports arviz.

Arviz is imported inside the functions, because it takes seconds.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayes_attn.sampling import Controls, Samples

DESCRIPTIONS = {
    "load": "load, the dimensionless data amount",
    "inverse_temperature": "inverse temperature, which multiplies the log-likelihood",
    "field": "field h, which adds size * h * m to the log-density",
    "logits": "attention logits",
    "copy_mass": "copy mass m: mean weight on the key to be copied",
    "participation": "participation q: mean over queries of the sum of squared weights",
    "uniform_overlap": "uniform overlap m_u: mean row sum of the weights",
    "row_power": "row power q_u: mean squared row sum of the weights",
    "lp": "log-density at the rung's controls (nats)",
    "replica": "which replica sits at the rung",
    "swap_acceptance": "acceptance probability of the swap of rungs (pair, pair + 1); NaN where not tried",
}
LEAST_PEAK = 0.1
"""Height of a second peak relative to the highest, below which it is not taken for one."""


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

    Returns depth 0 for a single peak. The density is arviz's kernel estimate; only peaks of at least a tenth of the
    highest one count, since in the tail the estimate itself has bumps. The error is the jackknife's over chains.
    """
    import arviz as az

    def depth(sample: np.ndarray) -> float:
        _, density, _ = az.kde(sample)
        interior = (density[1:-1] > density[:-2]) & (density[1:-1] >= density[2:])
        peaks = np.flatnonzero(interior) + 1
        peaks = peaks[density[peaks] > LEAST_PEAK * density.max()]
        best = 0.0
        for i, left in enumerate(peaks):
            for right in peaks[i + 1 :]:
                valley = density[left : right + 1].min()
                best = max(best, float(np.log(min(density[left], density[right]) / max(valley, 1e-300))))
        return best

    chains = len(values)
    without = np.array([depth(np.delete(values, chain, axis=0).ravel()) for chain in range(chains)])
    error = np.sqrt((chains - 1) * without.var()) if chains > 1 else np.inf
    return depth(values.ravel()), float(error)


def to_datatree(
    samples: Samples,
    parameter: str,
    dims: list[str],
    coords: dict[str, np.ndarray],
    rungs: list[int] | None = None,
    along: Literal["load", "rung"] = "load",
) -> xr.DataTree:
    """Samples at some rungs (default: all) as an arviz DataTree, the rungs' axis named and numbered by `along`.

    Groups, for the loads: `posterior` (the parameters, named `parameter`, (chain, draw, load, *dims), and the order
    parameters at the same draws), `sample_stats` (lp, acceptance_rate, diverging, replica), `every_scan` (order
    parameters and lp at every scan, dimensions (chain, scan, load)), and `ladder` (the whole path: controls by rung,
    and swap acceptance, dimensions (chain, scan, pair)).
    """
    import arviz as az

    whole, samples = samples, samples if rungs is None else samples.at(rungs)
    thin = samples.schedule.thin
    names = samples.order_parameters._fields
    order = dict(zip(names, samples.order_parameters, strict=True))
    at_draws = slice(thin - 1, None, thin)
    number = np.asarray(samples.path.load) if along == "load" else np.arange(samples.rungs)
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
        coords={along: number} | coords,
        dims={name: [along] for name in [*order, *stats]} | {parameter: [along, *dims]},
    )
    every = {name: (("chain", "scan", along), values.astype(np.float32)) for name, values in order.items()}
    every["lp"] = (("chain", "scan", along), samples.log_density)
    # The groups share the coordinates of the chains and loads.
    tree["every_scan"] = xr.DataTree(
        xr.Dataset(every, coords={"chain": np.arange(len(samples.log_density)), along: number})
    )
    ladder = {name: ("rung", np.asarray(getattr(whole.path, name))) for name in Controls._fields[:3]}
    swaps = {"swap_acceptance": (("chain", "scan", "pair"), whole.swap_acceptance.astype(np.float32))}
    tree["ladder"] = xr.DataTree(xr.Dataset(ladder | swaps))
    for group in tree.children.values():
        for name in DESCRIPTIONS.keys() & group.dataset.variables.keys():
            group[name].attrs["long_name"] = DESCRIPTIONS[name]
    return tree
