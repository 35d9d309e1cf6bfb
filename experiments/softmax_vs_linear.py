"""Question: does softmax attention jump during training where linear attention grows, and does the loss show it?

Both kinds are trained from scratch on the same data sets, at data amounts at these shares beyond the amount from which
training from scratch finds the copy pattern (the landscape's upper spinodal; for linear attention the point where m
leaves 0). Told for each: the largest change of the loss and of the copy mass between two records, as a share of its
whole change, where it is, and the steps that the copy mass takes from 25 % to 75 % of its final value.

    uv run python experiments/softmax_vs_linear.py runs/softmax-vs-linear
"""

import os
from pathlib import Path
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import matplotlib.pyplot as plt
import numpy as np
import tyro
from jaxtyping import Float
from matplotlib.figure import Figure

from bayes_attn import CopyTask, Population, theory
from bayes_attn.training import Regimen, Training, largest_step, train
from bayes_attn.workflow.figures import BLUE, GREEN, ORANGE, save
from bayes_attn.workflow.store import choose_folder, write_json, written_whole
from bayes_attn.workflow.training_job import data_sets

KINDS = ("softmax", "linear")
BEYOND = (1.05, 1.2, 1.5, 2.0)
SEEDS, SMALL_SEEDS = 16, 2
LENGTH, SMALL_LENGTH = 16, 10
REGIMEN = Regimen(steps=1_500, every=10, starts=("cold",))


def threshold(posterior: Population) -> float:
    """Sequences from which training from scratch finds the copy pattern, by the landscape (or the posterior's rise)."""
    found = theory.landscape(posterior)
    load = found.spinodal_high or found.critical_load or theory.transition(posterior).steepest_load
    return posterior.num_sequences(load)


def rise_steps(mass: Float[np.ndarray, "seed record"], every: int) -> Float[np.ndarray, " seed"]:
    """Steps from a quarter to three quarters of the final copy mass, between records by straight lines."""
    found = []
    for one in mass:
        times = []
        for share in (0.25, 0.75):
            level = share * one[-1]
            below = np.flatnonzero(one < level)
            last = int(below[-1]) if len(below) else 0
            rest = one[min(last + 1, len(one) - 1)] - one[last]
            times.append(last + (0.0 if rest <= 0 else (level - one[last]) / rest))
        found.append(every * (times[1] - times[0]))
    return np.array(found)


def rows(kind: str, limit: float, training: Training) -> list[dict[str, Any]]:
    """One line per data amount; medians over seeds with the standard deviation."""
    table = []
    mass = np.abs(training.order_parameters.copy_mass[:, 0])
    for index, amount in enumerate(training.amounts):
        line: dict[str, Any] = {"attention": kind, "data": float(amount), "over_threshold": float(amount) / limit}
        for name, series in (("loss", training.train_loss[:, 0, index]), ("copy_mass", mass[:, index])):
            share, record = largest_step(series)
            line[f"largest_{name}_step"] = float(np.median(share))
            line[f"largest_{name}_step_sd"] = float(share.std())
            line[f"largest_{name}_step_at"] = float(np.median(training.steps[record]))
        rise = rise_steps(mass[:, index], REGIMEN.every)
        table.append(line | {"rise_steps": float(np.median(rise)), "rise_steps_sd": float(rise.std())})
    return table


def draw(trainings: dict[str, Training]) -> Figure:
    """Loss and copy mass during training, a column per kind of attention, all at the second share."""
    figure, panels = plt.subplots(2, 2, figsize=(9, 5.4), sharex=True, sharey="row")
    for column, (kind, training) in zip(panels.T, trainings.items(), strict=True):
        above, below = column
        for values, colour, name in (
            (training.train_loss, BLUE, "on the data"),
            (training.held_out_loss, ORANGE, "on fresh sequences"),
        ):
            above.plot(training.steps, values[:, 0, 1].T, color=colour, lw=0.6, alpha=0.5)
            above.plot([], [], color=colour, label=name)
        below.plot(training.steps, np.abs(training.order_parameters.copy_mass[:, 0, 1]).T, color=GREEN, lw=0.6)
        above.set_title(f"{kind}, P = {training.amounts[1]:g} sequences", fontsize=10)
        below.set_xlabel("step of Adam")
    panels[0, 0].set(ylabel="mean squared error per target", ylim=(0, 1.3))
    panels[1, 0].set(ylabel="copy mass |m|", ylim=(0, None))
    panels[0, 1].legend(fontsize=8)
    return figure


def main(out: Path | None = None, small: bool = False, seed: int = 0) -> None:
    """Train both kinds and write a JSON and a figure.

    Parameters
    ----------
    out: folder, new or empty; default below runs/.
    small: a small size, for the tests.
    seed: fixes every random number.
    """
    length, seeds = (SMALL_LENGTH, SMALL_SEEDS) if small else (LENGTH, SEEDS)
    folder = choose_folder(out, "softmax-vs-linear", "softmax_vs_linear")
    trainings, table = {}, []
    for kind in KINDS:
        posterior = Population(CopyTask(length, length), kind)
        limit = threshold(posterior)
        amounts = np.ceil(limit * np.array(BEYOND))
        sets = data_sets(posterior, seeds, int(amounts[-1]), seed)
        trainings[kind] = train(sets, amounts, REGIMEN, seed)
        table += rows(kind, limit, trainings[kind])
        for row in table[-len(BEYOND) :]:
            print(
                f"{kind}, P = {row['data']:.0f}: largest change in {REGIMEN.every} steps: loss "
                f"{row['largest_loss_step']:.2f} at step {row['largest_loss_step_at']:.0f}, copy mass "
                f"{row['largest_copy_mass_step']:.2f} at {row['largest_copy_mass_step_at']:.0f}; rise in "
                f"{row['rise_steps']:.0f} ± {row['rise_steps_sd']:.0f} steps"
            )
    with written_whole(folder) as scratch:
        save(draw(trainings), scratch, "softmax_vs_linear")
        write_json(scratch / "softmax_vs_linear.json", {"length": length, "seeds": seeds, "seed": seed, "rows": table})
    print(f"Written to {folder}.")


if __name__ == "__main__":
    tyro.cli(main)
