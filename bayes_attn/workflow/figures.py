"""The figures of a run: theory as lines, samples as points with error bars, one colour-blind-safe style."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from scipy.interpolate import PchipInterpolator

from bayes_attn import theory
from bayes_attn.attention import attention_kind
from bayes_attn.diagnostics import rank_plot
from bayes_attn.verdict import LARGEST_RHAT
from bayes_attn.workflow.experiment import TransitionRun

# Okabe and Ito's palette.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"

plt.rcParams.update(
    {
        "figure.dpi": 150,
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
    }
)


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as NAME.png and NAME.svg, and close it."""
    for ending in ("png", "svg"):
        figure.savefig(folder / f"{name}.{ending}")
    plt.close(figure)


def _data_axis(axes: Axes, run: TransitionRun) -> None:
    """The data amount in sequences, as a second scale on top."""
    scale = run.posterior.num_sequences(1.0)
    both_ways = (lambda load: np.multiply(load, scale), lambda data: np.divide(data, scale))
    top = axes.secondary_xaxis("top", functions=both_ways)
    top.set_xlabel("data amount P (sequences)")


def copy_mass(run: TransitionRun) -> Figure:
    """Sampled mean copy mass over the analytic curve."""
    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    means = np.array([estimate.mean for estimate in run.verdict.evidence.estimates])
    errors = np.array([estimate.error for estimate in run.verdict.evidence.estimates])
    known = np.array([density is not None for density in run.densities])
    analytic = np.array([density.mean() for density in run.densities if density is not None])
    label = "theory, independent tokens" if run.own_tokens else "theory"
    if len(analytic) > 1:
        fine = np.linspace(run.loads[known][0], run.loads[known][-1], 400)
        mean = PchipInterpolator(run.loads[known], analytic)(fine)
        axes.plot(fine, mean, color=BLUE, label=f"{label}: mean at this L")
    if run.settings.attention == "softmax" and run.settings.prior == "iid":
        curve = theory.softmax.s_curve(run.posterior)
        inside = curve.load <= run.loads[-1]
        axes.plot(curve.load[inside], curve.copy_mass[inside], "--", color=GREY, lw=1, label=f"{label}: saddle points")
    critical = run.transition.critical_load
    if critical is not None and critical <= run.loads[-1]:
        axes.axvline(critical, color=GREY, lw=0.8, ls=":")
        axes.annotate(
            "α*", (critical, 1.0), xycoords=("data", "axes fraction"), xytext=(3, -12), textcoords="offset points"
        )
    if run.transition.spinodal_low is not None:
        high = min(run.transition.spinodal_high, run.loads[-1])
        if run.transition.spinodal_low < high:
            axes.axvspan(
                run.transition.spinodal_low, high, color=ORANGE, alpha=0.15, lw=0, label="both phases (spinodals)"
            )
    axes.errorbar(run.loads, means, errors, fmt="o", ms=4, capsize=2, color=RED, label="sampled, ± standard error")
    axes.set_xlabel("load α (dimensionless data amount)")
    axes.set_ylabel(f"mean copy mass {run.symbol}")
    axes.set_ylim(bottom=0)
    _data_axis(axes, run)
    axes.legend(loc="upper left")
    return figure


def histograms(run: TransitionRun) -> Figure:
    """Sampled histogram of the copy mass over the analytic density, below, at and above the transition."""
    rungs = run.histogram_rungs
    figure, panels = plt.subplots(1, len(rungs), figsize=(3.3 * len(rungs) + 0.6, 3.3), squeeze=False)
    for axes, rung in zip(panels[0], rungs, strict=True):
        values = run.copy_mass[:, :, rung]
        density = run.densities[rung]
        low, high = np.quantile(values, [0.0005, 0.9995])
        bins = np.linspace(max(0.0, low - 0.02) if low >= 0 else low - 0.02, high + 0.02, 61)
        counts = np.array([np.histogram(chain, bins)[0] for chain in values])
        heights = counts / counts.sum(1, keepdims=True) / np.diff(bins)
        centers, mean = 0.5 * (bins[1:] + bins[:-1]), heights.mean(0)
        axes.stairs(mean, bins, fill=True, color=ORANGE, alpha=0.5, label="sampled")
        error = heights.std(0, ddof=1) / np.sqrt(len(values))
        axes.errorbar(centers, mean, error, fmt="none", ecolor=RED, elinewidth=0.8)
        if density is not None:
            axes.plot(density.copy_mass, density.probability, color=BLUE, label="theory")
        axes.set_xlim(bins[0], bins[-1])
        axes.set_ylim(bottom=0)
        axes.set_title(f"α = {run.loads[rung]:.3f},  P = {run.data[rung]:.1f}", fontsize=10)
        axes.set_xlabel(f"copy mass {run.symbol}")
    panels[0, 0].set_ylabel("probability density")
    panels[0, 0].legend()
    return figure


def attention(run: TransitionRun) -> Figure:
    """Mean attention matrices on both sides of the transition."""
    rungs = [run.histogram_rungs[0], run.histogram_rungs[-1]]
    matrices = [_mean_weights(run, rung) for rung in rungs]
    bound = max(float(np.abs(matrix).max()) for matrix in matrices)
    signed = run.settings.attention == "linear"
    style = (
        {"cmap": "RdBu_r", "vmin": -bound, "vmax": bound} if signed else {"cmap": "viridis", "vmin": 0, "vmax": bound}
    )
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.6), sharey=True)
    for axes, rung, matrix in zip(panels, rungs, matrices, strict=True):
        image = axes.imshow(matrix, **style)
        axes.grid(visible=False)
        axes.set_title(f"α = {run.loads[rung]:.3f},  P = {run.data[rung]:.1f}", fontsize=10)
        axes.set_xlabel("key position")
    panels[0].set_ylabel("query position")
    label = "mean of sign(m) × weight" if signed else "mean attention weight"
    figure.colorbar(image, ax=panels, label=label)
    return figure


def _mean_weights(run: TransitionRun, rung: int) -> np.ndarray:
    """Mean attention matrix over the recorded draws; for linear attention after turning each to m > 0."""
    import jax

    logits = run.shown.params[:, :, rung].reshape(-1, run.settings.length, run.settings.length)
    kind, visible = attention_kind(run.settings.attention), run.posterior.task.visible
    weights = np.asarray(jax.vmap(lambda values: kind.weights(values, jax.numpy.asarray(visible)))(logits))
    if run.settings.attention == "linear":
        overlap = weights[:, run.posterior.task.queries, run.posterior.task.sources].mean(-1)
        weights = weights * np.sign(overlap)[:, None, None]
    return weights.mean(0)


def diagnostics(run: TransitionRun) -> Figure:
    """R-hat, effective sample size and swap rates along the ladder."""
    estimates = run.verdict.evidence.estimates
    figure, panels = plt.subplots(1, 3, figsize=(10.2, 3.1))
    panels[0].plot(run.loads, [e.rhat for e in estimates], "o-", ms=4, color=BLUE)
    panels[0].axhline(LARGEST_RHAT, color=GREY, lw=0.8, ls=":")
    panels[0].set_ylabel(f"R-hat of {run.symbol}")
    panels[0].set_ylim(bottom=0.995)
    panels[1].semilogy(run.loads, [e.ess for e in estimates], "o-", ms=4, color=GREEN)
    panels[1].yaxis.set_minor_formatter(NullFormatter())
    panels[1].set_ylabel(f"effective sample size of {run.symbol}")
    pairs = np.arange(run.samples.rungs - 1) + 0.5
    panels[2].plot(pairs, run.samples.swap_rate, "o-", ms=4, color=RED)
    panels[2].set_ylabel("swap rate of neighbouring rungs")
    panels[2].set_ylim(0, 1)
    panels[2].set_xlabel("rung of the path")
    if run.path == "detour":
        away = np.flatnonzero(np.asarray(run.samples.path.field) != 0)
        panels[2].axvspan(away[0] - 1, away[-1] + 1, color=ORANGE, alpha=0.15, lw=0, label="round the end point")
        panels[2].legend(loc="lower left")
    for axes in panels[:2]:
        axes.set_xlabel("load α")
    return figure


def free_energy(run: TransitionRun) -> Figure | None:
    """The sampled profile F(m) over the analytic one where both peaks are equally high, and both phases' branches."""
    evidence = run.verdict.evidence
    profile, branches = evidence.profile, evidence.phase_free_energies
    if profile is None:
        return None
    figure, panels = plt.subplots(1, 1 if branches is None else 2, figsize=(10.2, 4.0), squeeze=False)
    axes = panels[0, 0]
    lowest = float(profile.free_energy.min())
    shape = profile.free_energy - lowest
    axes.fill_between(
        profile.copy_mass, shape - profile.error, shape + profile.error,
        color=ORANGE, alpha=0.4, lw=0, label="sampled, ± standard error",
    )  # fmt: skip
    axes.errorbar(
        profile.bin_copy_mass, profile.bin_free_energy - lowest, profile.bin_error,
        fmt=".", ms=3, lw=0.8, color=RED, label="bins",
    )  # fmt: skip
    phases = evidence.coexistence
    title = "where the valley is deepest"
    if phases is not None:
        barrier = f"{phases.barrier:.2f} ± {phases.barrier_error:.2f} kT"
        if not np.isfinite(phases.barrier_error):
            barrier = f"about {phases.barrier:.2f} kT (too few samples in the valley)"
        title = f"α = {phases.equal_height:.4f} (equal height), barrier {barrier}"
    if (analytic := run.profile) is not None:
        shown = (analytic.copy_mass > profile.copy_mass[0]) & (analytic.copy_mass < profile.copy_mass[-1])
        axes.plot(
            analytic.copy_mass[shown], analytic.free_energy[shown], color=BLUE, label="theory: -log p(m) at this L"
        )
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(f"copy mass {run.symbol}")
    axes.set_ylabel("free energy F = -log p (kT)")
    axes.legend()
    if branches is not None:
        _branches(panels[0, 1], run)
    return figure


def _branches(axes: Axes, run: TransitionRun) -> None:
    """Free energy of the copy phase less that of the disordered one: zero at equal weight, slope the latent heat."""
    branches, phases = run.verdict.evidence.phase_free_energies, run.verdict.evidence.coexistence
    assert branches is not None
    assert phases is not None
    difference, error = branches.copy - branches.disordered, branches.difference_error
    axes.axhline(0, color=GREY, lw=0.8)
    axes.errorbar(
        branches.loads, difference, error, fmt="o", ms=4, capsize=2, color=RED, label="sampled, ± standard error"
    )
    if run.phase_difference is not None:
        axes.plot(branches.loads, run.phase_difference, color=BLUE, label="theory at this L")
    axes.axvspan(
        phases.equal_weight - phases.equal_weight_error, phases.equal_weight + phases.equal_weight_error,
        color=GREEN, alpha=0.4, lw=0, label="equal weight, ± standard error",
    )  # fmt: skip
    heat = f"{phases.latent_heat:.1f} ± {phases.latent_heat_error:.1f} kT"
    axes.set_title(f"equal weight at α = {phases.equal_weight:.4f}, latent heat {heat}", fontsize=10)
    axes.set_xlabel("load α (dimensionless data amount)")
    axes.set_ylabel("F(copy) - F(disordered) (kT)")
    axes.legend()


def points(
    axes: Axes, at: Sequence[float] | np.ndarray, values: Sequence[float], errors: Sequence[float], **style: Any
) -> None:
    """Points with error bars; open ones where the error is not known (infinite)."""
    for x, value, error in zip(at, values, errors, strict=True):
        known = bool(np.isfinite(error))
        axes.errorbar(
            x, value, error if known else 0.0, fmt="o", ms=4, capsize=2, fillstyle="full" if known else "none", **style
        )


def scaling(run: TransitionRun) -> Figure | None:
    """Barrier, shift between the two criteria and Binder's cumulant over the sizes that ran."""
    shown = [one for one in (*run.verdict.companions, run.verdict.evidence) if one.profile is not None]
    if len(shown) < 2:
        return None
    sizes = np.array([one.size for one in shown])
    figure, panels = plt.subplots(1, 3, figsize=(10.2, 3.2))
    points(panels[0], sizes, [one.barrier for one in shown], [one.barrier_error for one in shown], color=RED)
    if run.verdict.barriers is not None:
        fine = np.linspace(sizes[0], sizes[-1], 100)
        for fit, colour in zip(run.verdict.barriers.fits, (BLUE, GREEN, GREY), strict=True):
            axes_label = f"{fit.law}, AIC {fit.aic:.0f}"
            panels[0].plot(fine, fit(fine, sizes), color=colour, lw=1, label=axes_label)
        panels[0].legend(fontsize=8)
    panels[0].set_ylabel("barrier (kT)")
    for one in shown:
        if (phases := one.coexistence) is not None:
            shift, error = phases.shift / phases.equal_weight, phases.shift_error / phases.equal_weight
            panels[1].errorbar(one.size, shift, error, fmt="o", ms=4, capsize=2, color=BLUE)
        if (risen := one.rise) is not None:
            panels[2].errorbar(
                one.size, risen.binder_minimum, risen.binder_minimum_error, fmt="o", ms=4, capsize=2, color=GREEN
            )
    panels[1].axhline(0, color=GREY, lw=0.8)
    panels[1].set_ylabel("(α_w − α_h) / α_w")
    panels[2].axhline(2 / 3, color=GREY, lw=0.8, ls=":")
    panels[2].set_ylabel("minimum of Binder's cumulant")
    for axes in panels:
        axes.set_xlabel("length L")
        axes.set_xticks(sizes)
        axes.set_xlim(sizes[0] - 0.5, sizes[-1] + 0.5)
    return figure


def ranks(run: TransitionRun) -> Figure | None:
    """Ranks of the order parameters and the log-density among the chains, next to the transition."""
    rung = run.rung_near(run.verdict.evidence.middle)
    scalars = {run.symbol: run.copy_mass, "q": run.shown.order_parameters[1], "log-density": run.shown.log_density}
    return rank_plot(
        {name: np.asarray(values)[:, :, rung] for name, values in scalars.items()}, f"α = {run.loads[rung]:.3f}"
    )


FIGURES = {
    "copy_mass": copy_mass,
    "histograms": histograms,
    "free_energy": free_energy,
    "scaling": scaling,
    "attention": attention,
    "diagnostics": diagnostics,
    "ranks": ranks,
}
CAPTIONS = {
    "copy_mass": "Mean copy mass against the amount of data. Look at whether the points follow the solid curve, and "
    "where they leave the lower branch.",
    "histograms": "Histogram of the copy mass below, at and above the transition, over the analytic density. Two peaks "
    "in the middle panel are two phases.",
    "free_energy": "Left: free energy of the copy mass where both peaks are equally high, from the samples of all "
    "rungs reweighted to one load: two minima with a barrier between them are two phases at this size. Right: the free "
    "energies of both phases, one less the other: zero where they have equal weight, with the latent heat as slope.",
    "scaling": "Left: the barrier at each size that ran, with three laws and Akaike's criterion (lower is better); it "
    "has to grow (open points: too few samples in the valley for an error). Middle: the loads of equal weight and of "
    "equal height must not move apart. Right: the least value of Binder's cumulant 1 - <m^4> / 3<m^2>^2; 2/3 "
    "(dotted) where m does not fluctuate.",
    "attention": "Mean attention matrix below and above the transition. The bright line next to the diagonal is the "
    "copy head; positions lie on a ring, so query 0 copies from the last key. The scale is shared.",
    "diagnostics": "Convergence along the ladder: R-hat should be below the dotted line that the verdict asks for, the "
    "effective sample size high, and no swap rate near zero.",
    "ranks": "Ranks of the copy mass, the participation and the log-density among all chains, a line per chain: chains "
    "that sample the same law stay near zero.",
}
