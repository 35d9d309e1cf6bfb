"""The training job: Adam over seeds, starts and data amounts, beside the landscape that it descends."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from bayes_attn import theory
from bayes_attn.errors import InvalidInput, require, require_integer
from bayes_attn.joint import Joint
from bayes_attn.planner import Plan, plan
from bayes_attn.posterior import DataSet, Population
from bayes_attn.training import Regimen, Training, check_amounts, largest_step, train
from bayes_attn.workflow.settings import TrainSettings, model_json, population
from bayes_attn.workflow.store import RESULTS, choose_folder, finite, write_json, written_whole

LINEAR_CUT = 0.2
"""|m| above which linear attention, whose m grows continuously, counts as a copy head."""
AMOUNTS = 16
"""Data amounts by default,"""
REACH = (0.7, 1.15)
"""from this times the landscape's first special amount to this times the posterior's transition, where it lies last."""
SPREAD = (16.0, 84.0)
"""Percentiles over seeds that tell the spread."""


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """What was trained, and the theory beside it."""

    settings: TrainSettings
    plan: Plan
    """Special data amounts of the landscape and of the posterior, for averaged data."""
    training: Training
    cut: float
    """Copy mass above which a trained network counts as a copy head."""

    def switch(self, start: str) -> tuple[float, float, float]:
        """Data amount where a start becomes a copy head: median over seeds, and bounds of the central 68 %."""
        return percentiles(self.training.switch(start, self.cut))

    @property
    def shown(self) -> int:
        """Index of the least amount at which more than half of the cold starts end as copy heads; else the last."""
        above = np.flatnonzero(np.median(self.training.final_copy_mass[:, 0], axis=0) > self.cut)
        return int(above[0]) if len(above) else len(self.training.amounts) - 1

    def largest_steps(self, series: Float[np.ndarray, "seed start amount record"]) -> tuple[float, float]:
        """Median over seeds of the cold starts' largest step at the shown amount, and of where it is, in Adam steps."""
        share, record = largest_step(series[:, 0, self.shown])
        return float(np.median(share)), float(np.median(self.training.steps[record]))


def percentiles(values: Float[np.ndarray, " seed"]) -> tuple[float, float, float]:
    """Median and the bounds of the central 68 %: values that occur, so that infinite ones do no harm."""
    median, low, high = (float(np.percentile(values, at, method="nearest")) for at in (50.0, *SPREAD))
    return median, low, high


def run_training(
    settings: TrainSettings, progress: Callable[[str, float], None] | None = None
) -> tuple[TrainingRun, dict[str, Any], Path]:
    """Train, and write a folder: results.json, training.npz, report.html and its figures.

    Raises
    ------
    InvalidInput: any setting is bad; nothing has been written then.
    ArithmeticError: the theory has no answer for these settings.
    """
    from bayes_attn.workflow.training_report import write_training_report

    tell = progress or (lambda _stage, _fraction: None)
    began = time.perf_counter()
    posterior = population(settings)
    require_integer("train", "seeds", settings.seeds, least=1)
    require_integer("train", "seed", settings.seed, least=0)
    require(not settings.causal, "train", "causal", "must be False (its rows have no landscape in common)", True)
    require(settings.prior == "iid", "train", "prior", "must be iid (others have no landscape)", settings.prior)
    regimen = Regimen(steps=settings.steps, rate=settings.rate, every=settings.every, decay=not settings.plain)
    given = None if settings.data == "auto" else _parsed(settings.data)
    name = f"train-{settings.attention}-L{settings.length}-V{settings.vocab}"
    folder = choose_folder(settings.out, name, "train")
    tell("theory", 0.0)
    # Where the special amounts lie does not depend on the data at hand: any amount will do.
    placed, cut = plan(posterior, 1.0), copy_cut(posterior)
    amounts = default_amounts(placed) if given is None else given
    tell("theory", 1.0)
    tell("training", 0.0)
    sets = data_sets(posterior, settings.seeds, int(np.ceil(amounts[-1])), settings.seed)
    training = train(sets, amounts, regimen, settings.seed, lambda done: tell("training", done / settings.seeds))
    run = TrainingRun(settings=settings, plan=placed, training=training, cut=cut)
    results = training_json(run) | {"seconds": time.perf_counter() - began}
    with written_whole(folder) as scratch:
        kept = ("amounts", "steps", "train_loss", "held_out_loss", "attention")
        np.savez_compressed(
            scratch / "training.npz",
            starts=np.array(training.starts),
            copy_mass=training.order_parameters.copy_mass,
            participation=training.order_parameters.participation,
            **{name: getattr(training, name) for name in kept},
        )
        write_training_report(run, results, scratch)
        write_json(scratch / RESULTS, results)
    return run, results, folder


def _parsed(text: str) -> Float[np.ndarray, " amount"]:
    try:
        amounts = np.array([float(word) for word in text.split(",")])
    except ValueError:
        raise InvalidInput(f"train: `data` must be auto, or numbers with commas between, got {text!r}.") from None
    check_amounts("data", amounts, text)
    return amounts


def default_amounts(placed: Plan) -> Float[np.ndarray, " amount"]:
    """Whole sequences from well below the landscape's first special amount to beyond its last and the posterior's."""
    special = (
        placed.map_spinodal_low_data,
        placed.map_critical_data,
        placed.map_spinodal_high_data,
        placed.centre_data,
    )
    known = [amount for amount in special if amount is not None]
    first, last = min(known), max(known)
    return np.unique(np.round(np.geomspace(max(1.0, REACH[0] * first), max(2.0, REACH[1] * last), AMOUNTS)))


def copy_cut(posterior: Population) -> float:
    """Half-way between the copy masses of both minima at equal depth; a convention for linear attention."""
    found = theory.landscape(posterior)
    if found.copy_mass_disordered is None or found.copy_mass_copy is None:
        return LINEAR_CUT
    return 0.5 * (found.copy_mass_disordered + found.copy_mass_copy)


def data_sets(posterior: Population, seeds: int, sequences: int, seed: int) -> Iterator[Joint]:
    """The joint posterior of a data set of its own for every seed."""
    key = jax.random.key(seed)
    for number in range(seeds):
        tokens = posterior.task.draw_tokens(jax.random.fold_in(key, number), sequences)
        scales = (posterior.logit_scale, posterior.value_scale, posterior.noise)
        yield Joint(DataSet(np.asarray(tokens), posterior.task, posterior.attention, *scales))


def training_json(run: TrainingRun) -> dict[str, Any]:
    """The content of results.json; data amounts in sequences, None where one does not apply or is not reached."""
    training, placed = run.training, run.plan
    switches = {}
    for start in training.starts:
        for name, value in zip(("", "_low", "_high"), run.switch(start), strict=True):
            switches[f"switch_data_{start}{name}"] = finite(value)
    (loss, loss_at), (jump, jump_at) = (
        run.largest_steps(series) for series in (training.train_loss, np.abs(training.order_parameters.copy_mass))
    )
    mass = training.final_copy_mass
    rows = [
        {
            "start": start,
            "data": float(amount),
            "copy_mass": float(np.median(mass[:, i, j])),
            "copy_mass_low": float(np.percentile(mass[:, i, j], SPREAD[0])),
            "copy_mass_high": float(np.percentile(mass[:, i, j], SPREAD[1])),
            "train_loss": float(np.median(training.train_loss[:, i, j, -1])),
            "held_out_loss": float(np.median(training.held_out_loss[:, i, j, -1])),
        }
        for i, start in enumerate(training.starts)
        for j, amount in enumerate(training.amounts)
    ]
    return model_json(run.settings) | {
        **switches,
        "map_spinodal_low_data": placed.map_spinodal_low_data,
        "map_critical_data": placed.map_critical_data,
        "map_spinodal_high_data": placed.map_spinodal_high_data,
        "critical_data": placed.critical_data,
        "spinodal_low_data": placed.spinodal_low_data,
        "spinodal_high_data": placed.spinodal_high_data,
        "order": placed.order,
        "copy_mass_cut": run.cut,
        "shown_data": float(training.amounts[run.shown]),
        "largest_loss_step": loss,
        "largest_loss_step_at": loss_at,
        "largest_copy_mass_step": jump,
        "largest_copy_mass_step_at": jump_at,
        "rows": rows,
        "seeds": run.settings.seeds,
        "steps": run.settings.steps,
        "rate": run.settings.rate,
        "every": run.settings.every,
        "plain": run.settings.plain,
        "seed": run.settings.seed,
    }
