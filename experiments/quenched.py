"""Question: what do real data sets do to the transition that averaged data have at one sharp load?

Many data sets at each noise kappa, sampled side by side in one run, each along its own nested prefixes. Every set is
measured by itself, and only then are those averaged whose chains mixed: a histogram pooled over sets would show two
humps, or none, for reasons that no set has. Two widths are told apart: the smear of P* from set to set, and the width
of the transition within one set (between weights 0.1 and 0.9 of the copy phase). Data amounts grow as P* ~ kappa, so
that small noise means few sequences.

    uv run python experiments/quenched.py runs/quenched
"""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from matplotlib.figure import Figure

from bayes_attn import CopyTask, DataSet, Evidence, Population, Schedule, Starts, measure, sample, theory
from bayes_attn.errors import require
from bayes_attn.finite_size import growth
from bayes_attn.free_energy import smear
from bayes_attn.sampling import load_path
from bayes_attn.verdict import quality
from bayes_attn.workflow.figures import BLUE, GREY, ORANGE, RED, save
from bayes_attn.workflow.store import choose_folder, finite, write_json

NOISES = (0.1, 0.5, 2.0, 8.0)
SMALL_NOISES = (0.5,)
SETS = 8
SMALL_SETS = 2
CHAINS = 4
SCHEDULE = Schedule(warmup=600, draws=520, thin=10)
SMALL = Schedule(warmup=80, draws=40, thin=10)
RUNGS = 18
"""With 10, some neighbours hardly ever swap at noise 0.1."""
SMALL_RUNGS = 10
LADDER = np.array([0.0, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.8])
"""Loads of the path's joints, in units of the transition of averaged data."""
KNOTS = np.array([0.25, 0.5, 0.75, *np.arange(0.85, 1.16, 0.05), 1.25, 1.4, 1.6, 1.8])
"""Data amounts at which counts are stored, likewise; between them the posterior interpolates."""
HOT = np.arange(CHAINS) % 2 == 1


def data_sets(averaged: Population, load: float, sets: int, seed: int) -> list[DataSet]:
    """Independent data sets, long enough for a ladder about the load at which averaged data have their transition."""
    task, noise, amount = averaged.task, averaged.noise, averaged.num_sequences(load)
    # The last prefix is above the last load asked for.
    prefixes = np.unique(np.maximum(1, np.ceil(KNOTS * amount).astype(int)))
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), int(1000 * noise)), sets)
    return [
        DataSet(np.asarray(task.draw_tokens(key, int(prefixes[-1]))), task, noise=noise, prefixes=prefixes)
        for key in keys
    ]


def run(task: CopyTask, noise: float, sets: int, schedule: Schedule, rungs: int, seed: int) -> dict[str, Any]:
    """All data sets of one noise in one run: what each shows by itself, and then together.

    Most of the time is spent on reading the counts, which single precision halves; the outcome is exact all the same.
    """
    averaged = Population(task, noise=noise)
    expected = theory.transition(averaged).steepest_load
    posteriors = data_sets(averaged, expected, sets, seed)
    loads = LADDER * expected
    starts = Starts((posteriors[0].sample_prior, posteriors[0].sample_copy), CHAINS)
    samples = sample(posteriors, load_path(loads), starts, schedule, seed, rungs=rungs, precision="mixed")
    within = (float(loads[1]), float(loads[-1]))
    judged = list(range(1, samples.rungs))
    every = [
        of_set(posterior, measure(posterior, samples.of(number), HOT, float(task.length), judged, within))
        for number, posterior in enumerate(posteriors)
    ]
    return row(noise, averaged.num_sequences(expected), every)


def of_set(posterior: DataSet, one: Evidence) -> dict[str, Any]:
    """What one data set shows by itself. Data amounts in sequences; None where it shows no two phases."""
    phases, per_load = one.coexistence, posterior.num_sequences(1.0)
    entry: dict[str, Any] = {
        "believed": all(criterion.passed for criterion in quality(one)),
        "rise": None if one.rise is None else float(posterior.num_sequences(one.rise.load)),
        "rhat": finite(one.rhat),
        "swap_rate": one.swap_rate,
        "phase_round_trips": one.phase_round_trips,
        "loads": one.loads.tolist(),
        "copy_mass": [estimate.mean for estimate in one.estimates],
        "critical_data": None,
    }
    if phases is not None and np.isfinite(phases.equal_weight_error):
        entry |= {
            "critical_data": phases.equal_weight * per_load,
            "critical_data_error": phases.equal_weight_error * per_load,
            "width": phases.width * per_load,
            "barrier": phases.barrier,
            "barrier_error": finite(phases.barrier_error),
        }
    return entry


def row(noise: float, averaged: float, sets: list[dict[str, Any]]) -> dict[str, Any]:
    """One noise: mean and smear over the sets that are to be believed and show two phases.

    `averaged`: data amount at the transition of averaged data, in sequences.
    """
    good = [entry for entry in sets if entry["believed"]]
    two = [entry for entry in good if entry["critical_data"] is not None]
    line: dict[str, Any] = {
        "noise": noise,
        "critical_data_averaged": averaged,
        "believed": len(good),
        "two_phases": len(two),
        "sets": sets,
        "critical_data": None,
    }
    if len(two) > 1:
        columns = ("critical_data", "critical_data_error", "width", "barrier")
        critical, error, width, barrier = (np.array([e[name] for e in two]) for name in columns)
        line |= {
            "critical_data": asdict(smear(critical, error)),
            "width": float(width.mean()),
            "width_error": float(width.std(ddof=1) / np.sqrt(len(two))),
            "barrier": float(barrier.mean()),
            "barrier_error": float(barrier.std(ddof=1) / np.sqrt(len(two))),
        }
    return line


def power(rows: list[dict[str, Any]]) -> tuple[float, float] | None:
    """Exponent, with error, of the relative smear as a power of the noise; None with fewer than three noises."""
    known = [one for one in rows if one["critical_data"] is not None and one["critical_data"]["smear"] > 0]
    if len(known) < 3:
        return None
    noise, mean, spread, error = (
        np.array([of(one) for one in known])
        for of in (
            lambda one: one["noise"],
            lambda one: one["critical_data"]["mean"],
            lambda one: one["critical_data"]["smear"],
            lambda one: one["critical_data"]["smear_error"],
        )
    )
    found = growth(noise, spread / mean, error / mean)
    return found.exponent, found.exponent_error


def draw(content: dict[str, Any]) -> Figure:
    """Copy mass of every set, the transition against the noise, and both widths."""
    rows = content["rows"]
    figure, ((few, many), (transition, widths)) = plt.subplots(2, 2, figsize=(9.5, 7.5))
    task = CopyTask(content["length"], content["vocab"])
    for axes, one in ((few, rows[0]), (many, rows[-1])):
        base = Population(task, noise=one["noise"])
        per_load = base.num_sequences(1.0)
        for entry in one["sets"]:
            axes.plot(np.array(entry["loads"]) * per_load, entry["copy_mass"], color=BLUE, lw=0.8, alpha=0.6)
        rungs = one["sets"][0]["loads"]
        loads = np.linspace(rungs[0], rungs[-1], 32)
        means = [np.nan if one is None else one.mean() for one in theory.densities(base, list(loads))]
        axes.plot(loads * per_load, means, color=RED, label="averaged data (theory)")
        axes.plot([], [], color=BLUE, label="one data set each (sampled)")
        axes.set(title=f"noise κ = {one['noise']:g}", xlabel="data P (sequences)", ylabel="mean copy mass")
        axes.legend(fontsize=8)
    transition.axhline(rows[0]["critical_data_averaged"] / rows[0]["noise"], color=RED, label="averaged data (theory)")
    transition.set(xscale="log", xlabel="noise κ", ylabel="P* / κ (sequences)")
    widths.set(xscale="log", xlabel="noise κ", ylabel="relative to P*")
    known = [one for one in rows if one["critical_data"] is not None]
    if not known:
        return figure
    noise = np.array([one["noise"] for one in known])
    mean, error, spread, spread_error = (
        np.array([one["critical_data"][name] for one in known]) for name in ("mean", "error", "smear", "smear_error")
    )
    transition.errorbar(noise, mean / noise, spread / noise, fmt="none", ecolor=GREY, lw=5, alpha=0.4, label="smear")
    transition.errorbar(noise, mean / noise, error / noise, fmt="o", color=BLUE, label="mean over sets")
    transition.legend(fontsize=8)
    widths.errorbar(noise, spread / mean, spread_error / mean, fmt="o", color=BLUE, label="smear from set to set")
    width, width_error = (np.array([one[name] for one in known]) for name in ("width", "width_error"))
    widths.errorbar(noise, width / mean, width_error / mean, fmt="s", color=ORANGE, label="width within one set")
    widths.plot(noise, (spread / mean)[-1] * np.sqrt(noise[-1] / noise), "--", color=GREY, lw=1, label="∝ κ^(-1/2)")
    widths.set(yscale="log")
    widths.legend(fontsize=8)
    return figure


def words(found: dict[str, Any]) -> str:
    """One noise in a line."""
    sets = found["sets"]
    line = f"κ = {found['noise']:g}: of {len(sets)} sets {found['believed']} are to be believed, "
    line += f"{found['two_phases']} of them show two phases"
    if (critical := found["critical_data"]) is not None:
        line += (
            f"; P* = {critical['mean']:.2f} ± {critical['error']:.2f} (averaged data: "
            f"{found['critical_data_averaged']:.2f}), smear {critical['smear']:.2f} ± {critical['smear_error']:.2f}, "
            f"width within a set {found['width']:.2f} ± {found['width_error']:.2f}, error within a set "
            f"{critical['within']:.2f}"
        )
    return line + f"; swap rates from {min(entry['swap_rate'] for entry in sets):.2f}"


def main(
    folder: tyro.conf.Positional[Path],
    small: bool = False,
    length: int = 20,
    vocab: int = 10,
    seed: int = 0,
    resume: bool = False,
) -> None:
    """Write quenched.json, .png and .svg into a new folder, and print a line per noise.

    A noise that is done is kept at once: with `--resume`, a run that was stopped goes on from there.
    """
    settings = {"small": small, "length": length, "vocab": vocab, "seed": seed}
    parts = folder / "noises.json"
    if resume:
        kept = json.loads(parts.read_text()) if parts.is_file() else {"settings": None, "rows": []}
        rule = f"must meet a run with {settings} in {str(folder)!r}"
        require(kept["settings"] == settings, "quenched", "resume", rule, kept["settings"])
        rows = kept["rows"]
    else:
        choose_folder(folder, "quenched", "quenched").mkdir(parents=True, exist_ok=True)
        rows = []
    task, amounts = CopyTask(length, vocab), (SMALL_SETS, SMALL, SMALL_RUNGS) if small else (SETS, SCHEDULE, RUNGS)
    for noise in (SMALL_NOISES if small else NOISES)[len(rows) :]:
        began = time.perf_counter()
        rows.append(run(task, noise, *amounts, seed))
        write_json(parts, {"settings": settings, "rows": rows})
        print(f"{words(rows[-1])} ({time.perf_counter() - began:.0f} s)", flush=True)
    content = settings | {"rows": rows, "exponent": power(rows)}
    save(draw(content), folder, "quenched")
    write_json(folder / "quenched.json", content)
    if content["exponent"] is not None:
        print("smear / P* is κ to the power {:.2f} ± {:.2f}".format(*content["exponent"]))
    print(f"Written to {folder}.")


if __name__ == "__main__":
    tyro.cli(main)
