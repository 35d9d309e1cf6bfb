"""Figures and report of a training run: networks as thin lines, medians as thick ones, the theory as verticals."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayes_attn.workflow.figures import BLUE, GREEN, GREY, ORANGE, RED
from bayes_attn.workflow.report import command, embedded, template
from bayes_attn.workflow.training_job import TrainingRun

COLOURS = {"cold": BLUE, "hot": RED}
HEADINGS = {
    "switch": "Where training switches",
    "curves": "Loss and copy mass during training",
    "attention": "Attention matrices during training",
}
CAPTIONS = {
    "switch": "Copy mass after training against the amount of data. Thin: one data set each; thick: their median. "
    "Dashed: the landscape that Adam descends (the copy minimum appears, both are equally deep, the disordered one "
    "vanishes); dotted: the transition of the posterior.",
    "curves": "From scratch, at the least amount of data that makes more than half of the networks copy heads. Thin: "
    "one data set each; thick: the first. Vertical: the largest change between two records.",
    "attention": "Of the first network from scratch at the same amount of data, about the step at which its copy mass "
    "changes most.",
}
PANELS = 5


def switch(run: TrainingRun) -> Figure:
    """Final copy mass against the data amount."""
    training, placed = run.training, run.plan
    figure, axes = plt.subplots(figsize=(7, 4))
    for index, start in enumerate(training.starts):
        mass = training.final_copy_mass[:, index]
        axes.plot(training.amounts, mass.T, color=COLOURS[start], lw=0.6, alpha=0.35)
        label = {"cold": "from scratch (cold)", "hot": "from the copy pattern (hot)"}[start]
        axes.plot(training.amounts, np.median(mass, axis=0), "o-", ms=4, color=COLOURS[start], label=label)
    at_map = (placed.map_spinodal_low_data, placed.map_critical_data, placed.map_spinodal_high_data)
    known = [value for value in at_map if value is not None]
    for number, value in enumerate(known):
        axes.axvline(value, color=GREY, ls="--", lw=1, label=None if number else "landscape of Adam")
    if placed.critical_data is not None:
        axes.axvline(placed.critical_data, color=GREEN, ls=":", lw=1.6, label="posterior, P*")
    axes.axhline(run.cut, color=ORANGE, lw=0.8, label="counts as a copy head above")
    axes.set(xlabel="data amount P (sequences)", ylabel=f"copy mass {_symbol(run)} after training", ylim=(0, 1))
    axes.legend(fontsize=8, loc="lower right", frameon=True, framealpha=0.9, edgecolor="none")
    return figure


def curves(run: TrainingRun) -> Figure:
    """Loss and copy mass against the step, from scratch at the shown amount."""
    training, at = run.training, run.shown
    figure, (above, below) = plt.subplots(2, 1, figsize=(7, 5.2), sharex=True)
    panels: tuple[tuple[Axes, str, list[tuple[np.ndarray, str, str]]], ...] = (
        (
            above,
            "mean squared error per target",
            [(training.train_loss, BLUE, "on the data"), (training.held_out_loss, ORANGE, "on fresh sequences")],
        ),
        (below, f"copy mass {_symbol(run)}", [(np.abs(training.order_parameters.copy_mass), GREEN, "")]),
    )
    for axes, label, series in panels:
        for values, colour, name in series:
            axes.plot(training.steps, values[:, 0, at].T, color=colour, lw=0.5, alpha=0.35)
            axes.plot(training.steps, values[0, 0, at], color=colour, lw=1.8, label=name or None)
        _, middle = run.largest_steps(series[0][0])
        axes.axvline(middle, color=GREY, ls=":", lw=1.2)
        axes.set_ylabel(label)
    above.legend(fontsize=8)
    above.set_title(f"P = {training.amounts[at]:g} sequences", fontsize=10)
    below.set(xlabel="step of Adam", ylim=(0, None))
    return figure


def attention(run: TrainingRun) -> Figure:
    """Attention matrices of the first network about its largest change of copy mass."""
    training, at = run.training, run.shown
    mass = np.abs(training.order_parameters.copy_mass[0, 0, at])
    rise = int(np.argmax(np.abs(np.diff(mass)))) + 1
    last = len(training.steps) - 1
    records = np.unique(np.clip([0, rise // 2, rise, (rise + last) // 2, last], 0, last))
    weights = training.attention[0, at, records]
    figure, panels = plt.subplots(1, len(records), figsize=(2.1 * PANELS, 2.9), squeeze=False)
    signed = bool(weights.min() < 0)
    top = float(np.abs(weights).max())
    image = None
    for axes, matrix, record in zip(panels[0], weights, records, strict=True):
        image = axes.imshow(matrix, cmap="RdBu_r" if signed else "viridis", vmin=-top if signed else 0.0, vmax=top)
        axes.set_title(f"step {training.steps[record]}\n{_symbol(run)} = {mass[record]:.2f}", fontsize=9)
        axes.set_xlabel("key")
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
    panels[0, 0].set_ylabel("query")
    assert image is not None
    figure.colorbar(image, ax=list(panels[0]), label="attention weight", shrink=0.7)
    return figure


FIGURES = {"switch": switch, "curves": curves, "attention": attention}


def _symbol(run: TrainingRun) -> str:
    return "|m|" if run.settings.attention == "linear" else "m"


def sentences(run: TrainingRun, results: dict[str, Any]) -> list[str]:
    """What was seen, in words."""
    settings, lines = run.settings, []
    what = f"{settings.attention.capitalize()} attention, L = {settings.length}, V = {settings.vocab}"
    for start, name in (("cold", "from scratch"), ("hot", "from the copy pattern")):
        median, low, high = run.switch(start)
        if np.isfinite(median):
            upper = f"{high:g}" if np.isfinite(high) else "more than the most data"
            found = f"at {median:g} sequences (68 % of {settings.seeds} data sets: {low:g} to {upper})"
        else:
            found = "with none of the data amounts"
        lines.append(f"{what}, trained {name}: the copy head appears {found}.")
    marks = (results["map_spinodal_low_data"], results["map_critical_data"], results["map_spinodal_high_data"])
    if marks[0] is not None:
        low, equal, high = (f"{value:.1f}" for value in marks)
        lines.append(
            f"The landscape of the loss has a copy minimum from {low} sequences on, as deep as the disordered one at "
            f"{equal}, and alone from {high} on."
        )
    elif marks[1] is not None:
        lines.append(f"In the landscape of the loss m leaves 0 continuously, at {marks[1]:.1f} sequences.")
    if results["critical_data"] is not None:
        lines.append(f"The posterior's own transition lies at {results['critical_data']:.1f} sequences.")
    lines.append(
        f"From scratch at {results['shown_data']:g} sequences, the largest change within {settings.every} steps is "
        f"{results['largest_loss_step']:.0%} of the loss's whole fall (step {results['largest_loss_step_at']:.0f}) and "
        f"{results['largest_copy_mass_step']:.0%} of the copy mass's rise "
        f"(step {results['largest_copy_mass_step_at']:.0f})."
    )
    return lines


def write_training_report(run: TrainingRun, results: dict[str, Any], folder: Path) -> None:
    """Write report.html and one PNG per figure into `folder`; `results` is the content of results.json."""
    settings = run.settings
    page = template("training.html.jinja").render(
        title=f"Training of {settings.attention} attention, L = {settings.length}, V = {settings.vocab}",
        sentences=sentences(run, results),
        figures=embedded({name: draw(run) for name, draw in FIGURES.items()}, HEADINGS, CAPTIONS, folder),
        rows=results["rows"],
        symbol=_symbol(run),
        command=command(settings, "train"),
    )
    (folder / "report.html").write_text(page, encoding="utf-8")
