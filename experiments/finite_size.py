"""Question: does the transition of softmax attention stay first-order as the size grows, and how do its marks scale?

Sampled along the line of coexistence at lengths 16, 20, 24, 28 and 32, with V = L and with V = 16: the barrier where
both peaks are equally high, the peaks' positions, equal weight less equal height, and Binder's cumulant at its minimum;
each with constant, growing and power laws compared by Akaike's criterion, beside the analytic density of the same size.

    uv run python experiments/finite_size.py runs/finite-size
"""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import matplotlib.pyplot as plt
import numpy as np
import tyro
from matplotlib.figure import Figure

from bayes_attn import CopyTask, Evidence, Population, Samples, Schedule, Starts, judge, measure, sample, theory
from bayes_attn.finite_size import growth
from bayes_attn.sampling import coexistence_path
from bayes_attn.workflow.figures import BLUE, GREEN, ORANGE, RED, points, save
from bayes_attn.workflow.store import choose_folder, finite, write_json, written_whole

LENGTHS = (16, 20, 24, 28, 32)
SMALL_LENGTHS = (14, 16, 18, 20)
SMALL_FAMILIES = ("V = L",)
FAMILIES = {"V = L": lambda length: length, "V = 16": lambda _length: 16}
RUNGS = {24: 16, 28: 24, 32: 32}
"""Per length, 8 for others: a valley is deep at large sizes, and known from the samples far along the line."""
CHAINS = {24: 8, 28: 8, 32: 8}
"""Likewise, 4 for others."""
FITTED = ("barrier", "peak_disordered", "peak_copy", "shift", "binder_minimum")
SCHEDULE = Schedule(warmup=800, draws=100, thin=40)
SMALL = Schedule(warmup=240, draws=30, thin=40)


def sampled(length: int, vocab: int, schedule: Schedule, seed: int) -> tuple[Population, Samples]:
    """One size, on its line of coexistence."""
    posterior = Population(CopyTask(length, vocab))
    starts = Starts((posterior.sample_prior, posterior.sample_copy), CHAINS.get(length, 4))
    path = coexistence_path(*theory.way_to_end(posterior))
    return posterior, sample(posterior, path, starts, schedule, seed, rungs=RUNGS.get(length, 8))


def evidence(posterior: Population, samples: Samples) -> Evidence:
    """What it shows at no field, where the load is that of the transition."""
    critical, length = theory.transition(posterior).steepest_load, posterior.task.length
    hot = np.arange(CHAINS.get(length, 4)) % 2 == 1
    return measure(posterior, samples, hot, float(length), [0], (0.9 * critical, 1.06 * critical))


def run(length: int, vocab: int, schedule: Schedule, seed: int) -> Evidence:
    return evidence(*sampled(length, vocab, schedule, seed))


def analytic(length: int, vocab: int, load: float) -> dict[str, float | None]:
    """Peaks and barrier of the analytic density at the sampled load of equal height."""
    found = theory.profile(Population(CopyTask(length, vocab)), load)
    low, high = found.peaks or (None, None)
    return {"peak_disordered": low, "peak_copy": high, "barrier": found.barrier}


def row(vocab: int, found: Evidence) -> dict[str, Any]:
    """What one size shows; None where it has no two phases."""
    length = int(found.size)
    line: dict[str, Any] = {
        "length": length,
        "vocab": vocab,
        "phase_round_trips": found.phase_round_trips,
        "rhat": found.rhat,
        "swap_rate": found.swap_rate,
        "barrier": found.barrier,
        "barrier_error": found.barrier_error,
        "binder_minimum": None if found.rise is None else found.rise.binder_minimum,
        "binder_minimum_error": None if found.rise is None else found.rise.binder_minimum_error,
        "equal_weight": None,
        "theory": None,
    }
    if (phases := found.coexistence) is not None and phases.profile.peaks and phases.profile.peak_errors:
        (low, high), (low_error, high_error) = phases.profile.peaks, phases.profile.peak_errors
        line |= {
            "equal_weight": phases.equal_weight,
            "equal_weight_error": phases.equal_weight_error,
            "equal_height": phases.equal_height,
            "equal_height_error": phases.equal_height_error,
            "shift": phases.shift / phases.equal_weight,
            "shift_error": phases.shift_error / phases.equal_weight,
            "latent_heat": phases.latent_heat,
            "latent_heat_error": phases.latent_heat_error,
            "peak_disordered": low,
            "peak_disordered_error": low_error,
            "peak_copy": high,
            "peak_copy_error": high_error,
            "theory": analytic(length, vocab, phases.equal_height),
        }
    return {name: finite(value) if isinstance(value, float) else value for name, value in line.items()}


def fits(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]] | None:
    """Laws of one quantity over the sizes, the best first; None with fewer than three sizes that know it."""
    known = [one for one in rows if one.get(name) is not None and one[f"{name}_error"] is not None]
    if len(known) < 3:
        return None
    columns = (np.array([float(one[column]) for one in known]) for column in ("length", name, f"{name}_error"))
    return [asdict(fit) for fit in growth(*columns).fits]


def draw(content: dict[str, Any]) -> Figure:
    """Barrier, peaks, shift and Binder's minimum against the length, a column per family."""
    figure, panels = plt.subplots(4, len(content), figsize=(9.0, 11.0), sharex=True, squeeze=False)
    for column, name in zip(panels.T, content, strict=True):
        rows = content[name]["rows"]
        lengths = [one["length"] for one in rows]
        two = [one for one in rows if one["theory"] is not None]
        at = [one["length"] for one in two]
        barrier, peaks, shift, binder = column
        barrier.set_title(f"{name}: {content[name]['finding']}")
        errors = [np.inf if r["barrier_error"] is None else r["barrier_error"] for r in rows]
        points(barrier, lengths, [r["barrier"] for r in rows], errors, color=RED)
        barrier.plot([], [], "o", ms=4, color=RED, label="sampled")
        if not np.all(np.isfinite(errors)):
            barrier.plot([], [], "o", ms=4, color=RED, fillstyle="none", label="sampled, too few in the valley")
        barrier.plot(at, [r["theory"]["barrier"] for r in two], color=BLUE, label="theory: p(m) at this L")
        barrier.legend()
        for peak, colour in (("peak_disordered", ORANGE), ("peak_copy", GREEN)):
            errors = [r[f"{peak}_error"] for r in two]
            label = f"sampled, {peak.split('_')[1]}"
            peaks.errorbar(at, [r[peak] for r in two], errors, fmt="o", color=colour, label=label)
            peaks.plot(at, [r["theory"][peak] for r in two], color=colour)
        peaks.legend()
        shift.errorbar(at, [r["shift"] for r in two], [r["shift_error"] for r in two], fmt="o", color=RED)
        shift.axhline(0, lw=0.8, color="black")
        binder.errorbar(
            lengths, [r["binder_minimum"] for r in rows], [r["binder_minimum_error"] for r in rows], fmt="o", color=RED
        )
        binder.axhline(2 / 3, lw=0.8, ls=":", color="black")
        binder.set_xlabel("length L")
        binder.set_xticks(lengths)
    for axes, label in zip(
        panels[:, 0],
        ("barrier (kT)", "peaks of p(m)", "(α_w - α_h) / α_w", "minimum of Binder's cumulant"),
        strict=True,
    ):
        axes.set_ylabel(label)
    return figure


def main(folder: tyro.conf.Positional[Path], small: bool = False, seed: int = 0) -> None:
    """Write finite_size.json, .png and .svg into a new folder, and print the verdicts."""
    folder = choose_folder(folder, "finite-size", "finite-size")
    content: dict[str, Any] = {}
    with written_whole(folder) as scratch:
        for name in SMALL_FAMILIES if small else FAMILIES:
            size, runs = FAMILIES[name], []
            for length in SMALL_LENGTHS if small else LENGTHS:
                runs.append(run(length, size(length), SMALL if small else SCHEDULE, seed))
                error = runs[-1].barrier_error
                known = f"± {error:.3f}" if np.isfinite(error) else "(too few samples in the valley for an error)"
                print(
                    f"{name}, L = {length}: barrier {runs[-1].barrier:.3f} kT {known}, "
                    f"{runs[-1].phase_round_trips} round trips",
                    flush=True,
                )
            # A valley with too few samples in it has no error, and cannot be judged.
            verdict = judge([one for one in runs if np.isfinite(one.barrier_error)] or runs)
            rows = [row(size(int(one.size)), one) for one in runs]
            content[name] = {
                "finding": verdict.finding,
                "reasons": list(verdict.reasons),
                "rows": rows,
                "fits": {quantity: fits(rows, quantity) for quantity in FITTED},
            }
            print(f"{name}: {verdict.finding}. {'; '.join(verdict.reasons)}.")
        write_json(scratch / "finite_size.json", content)
        save(draw(content), scratch, "finite_size")
    print(f"Written to {folder}.")


if __name__ == "__main__":
    tyro.cli(main)
