"""Convergence, errors and storage of samples: the one module that imports arviz.

Arviz is imported inside the functions, because it takes seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from bayes_attn.errors import require
from bayes_attn.sampling import Controls, Samples

if TYPE_CHECKING:
    import matplotlib.figure

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
    "energy": "Hamiltonian energy of the proposal (nats)",
    "replica": "which replica sits at the rung",
    "swap_acceptance": "acceptance probability of the swap of rungs (pair, pair + 1); NaN where not tried",
}
LEAST_VISITS = 50
"""Scans of a chain in a phase, below which it says nothing about convergence there."""
LEAST_RANKED = 20
"""Scans of a chain in a rank plot, however slow the chains."""
Phase = Literal["overall", "disordered", "copy"]


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


@dataclass(frozen=True)
class PhaseRow:
    """Convergence of one scalar, in one phase or overall."""

    phase: Phase
    scalar: str
    scans: int
    """In the phase, over all chains."""
    estimate: Estimate | None
    """Over the chains that are compared. None where fewer than two chains have `LEAST_VISITS` scans in the phase."""


def estimate(values: Float[np.ndarray, "chain scan"]) -> Estimate:
    """Mean of a scalar over chains and scans.

    A constant (such as the row sum of softmax attention) has error 0, the ESS of independent draws and R-hat 1.
    """
    import arviz as az

    chains, scans = values.shape
    if _is_constant(values):
        return Estimate(float(values.flat[0]), 0.0, float(chains * scans), 1.0)
    between = float(values.mean(axis=1).std(ddof=1) / np.sqrt(chains)) if chains > 1 else 0.0
    within = float(az.mcse(values))
    return Estimate(float(values.mean()), max(within, between), float(az.ess(values)), float(az.rhat(values)))


def _is_constant(values: Float[np.ndarray, "chain scan"]) -> bool:
    """Up to rounding."""
    return bool(np.ptp(values) <= 1e-12 * max(1.0, abs(float(values.flat[0]))))


def phase_diagnostics(
    values: Mapping[str, Float[np.ndarray, "chain scan"]], copy_mass: Float[np.ndarray, "chain scan"], cut: float
) -> tuple[PhaseRow, ...]:
    """Convergence at one rung: overall, and within the disordered (copy mass <= `cut`) and the copy phase.

    R-hat overall tells whether chains switch between the phases; within a phase, whether they agree about it however
    seldom they switch. There, each chain's scans in the phase are strung together, visits joined, and all are trimmed
    to the shortest; chains with fewer than `LEAST_VISITS` are left out.
    """
    for name, series in values.items():
        require(series.shape == copy_mass.shape, "phase_diagnostics", name, "must have copy_mass's shape", series.shape)
    inside: dict[Phase, np.ndarray] = {
        "overall": np.ones(copy_mass.shape, dtype=bool),
        "disordered": copy_mass <= cut,
        "copy": copy_mass > cut,
    }
    return tuple(
        PhaseRow(phase, name, int(here.sum()), _estimate_where(here, series))
        for phase, here in inside.items()
        for name, series in values.items()
    )


def _estimate_where(here: Bool[np.ndarray, "chain scan"], values: Float[np.ndarray, "chain scan"]) -> Estimate | None:
    kept = [series[chosen] for series, chosen in zip(values, here, strict=True) if chosen.sum() >= LEAST_VISITS]
    if len(kept) < 2:
        return None
    shortest = min(len(series) for series in kept)
    return estimate(np.stack([series[:shortest] for series in kept]))


def bfmi(energy: Float[np.ndarray, "chain scan"]) -> Float[np.ndarray, " chain"]:
    """Energy Bayesian fraction of missing information of each chain; below 0.3 momenta explore energies too slowly.

    2 for energies that are new at every scan, NaN where they are missing (exact draws) or constant.

    References
    ----------
    Betancourt, "Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo" (2016), arXiv:1604.00695.
    """
    import arviz as az

    known = np.isfinite(energy).all(axis=1) & (np.ptp(energy, axis=1) > 0)
    fraction = np.full(len(energy), np.nan)
    if known.any():
        fraction[known] = az.bfmi(energy[known])
    return fraction


def rank_plot(values: Mapping[str, Float[np.ndarray, "chain scan"]], title: str = "") -> "matplotlib.figure.Figure":
    """Distribution of each scalar's ranks among all chains, less the uniform one; a colour per chain.

    Chains that sample one law stay near zero. The p-value is of that, and holds for independent draws; so scans are
    first thinned by the autocorrelation within the chains, the slowest scalar's, to `LEAST_RANKED` a chain at least.
    A constant has no ranks and is left out. The figure is pyplot's, to be closed by the caller.

    References
    ----------
    Säilynoja, Bürkner, Vehtari, Stat. Comput. 32 (2022), doi:10.1007/s11222-022-10090-6: the plot.
    Tesso et al. (2026), arXiv:2603.02928: the test.
    """
    import arviz as az

    varying = {name: series for name, series in values.items() if not _is_constant(series)}
    require(len(varying) > 0, "rank_plot", "values", "must have a scalar that varies", list(values))
    scans = next(iter(varying.values())).shape[1]
    # Chain by chain: together, chains in different places would have hardly any independent draws.
    independent = min(np.mean([az.ess(chain[None]) for chain in series]) for series in varying.values())
    every = int(max(1, min(np.ceil(scans / independent), scans // LEAST_RANKED)))
    columns = min(len(varying), 3)
    plot = az.plot_rank(
        az.from_dict({"posterior": {name: series[:, ::every] for name, series in varying.items()}}),
        backend="matplotlib",
        visuals={"remove_axis": False},
        # No marks on the scans that speak most against equality: they would hide the colours.
        stats={"ecdf_pit": {"gamma": np.inf}},
        col_wrap=columns,
        figure_kwargs={
            "figsize": (3.6 * columns + 1, 2.6 * -(-len(varying) // columns) + 0.3),
            "layout": "constrained",
            "sharex": False,
            "sharey": True,
        },
    )
    plot.add_legend("chain")
    figure = plot.viz["figure"].item()
    figure.suptitle(title)
    figure.supylabel("ECDF of the ranks, less uniform")
    return figure


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
    if (energy := getattr(samples, "energy", None)) is not None:
        stats["energy"] = energy
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
