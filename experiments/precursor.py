"""Question: does anything announce the transition? Softmax against linear attention, as the load grows towards it.

From the theory: the susceptibility R var(m) (theory, section 4) of the disordered phase relative to its value without
data, and the distance from the transition to the end of the disordered phase, at V = L.

What came out. Linear attention: at the critical load the susceptibility is 9.9, 21, 47 and 103 times that without
data for L = 16, 32, 64 and 128; it grows with L without bound, the precursor of a second-order transition. Softmax:
6.3, 1.6, 1.09, 0.96 and 0.94 times for L = 16, 32, 64, 128 and 256; from about L = 100 on the disordered phase is
*stiffer* at the transition than without data, and its spinodal lies far off, 4, 32, 86, 173 and 304 % beyond.

    uv run python experiments/precursor.py runs/precursor
"""

import os
from pathlib import Path
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import matplotlib.pyplot as plt
import numpy as np
import tyro
from matplotlib.figure import Figure

from bayes_attn import CopyTask, Population, theory
from bayes_attn.workflow.figures import BLUE, RED, save
from bayes_attn.workflow.store import choose_folder, write_json, written_whole

SIZES = {"softmax": [16, 32, 64, 128, 256], "linear": [16, 32, 64, 128]}
FRACTIONS = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 1.0])
"""Of the critical load."""


def study(sizes: dict[str, list[int]]) -> list[dict[str, Any]]:
    """One entry per kind of attention and size."""
    rows = []
    for attention, lengths in sizes.items():
        for length in lengths:
            posterior = Population(CopyTask(length, length), attention)
            found = theory.transition(posterior)
            chi = theory.susceptibility(posterior, FRACTIONS * found.steepest_load)
            rows.append(
                {
                    "attention": attention,
                    "length": length,
                    "critical_load": found.critical_load,
                    "fraction_of_critical_load": FRACTIONS.tolist(),
                    "susceptibility": chi.tolist(),
                    "growth_at_transition": float(chi[-1] / chi[0]),
                    "spinodal_distance": None
                    if found.spinodal_high is None
                    else found.spinodal_high / found.steepest_load - 1,
                }
            )
    return rows


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Susceptibility against load, and its growth and the distance to the spinodal against size."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.5, 4.0))
    colours = {"softmax": RED, "linear": BLUE}
    for attention, colour in colours.items():
        own = [row for row in rows if row["attention"] == attention]
        for row, shade in zip(own, np.linspace(0.35, 1, len(own)), strict=True):
            chi = np.array(row["susceptibility"])
            left.semilogy(
                row["fraction_of_critical_load"], chi / chi[0], color=colour, alpha=shade,
                label=f"{attention}, L = V = {row['length']}",
            )  # fmt: skip
        lengths = [row["length"] for row in own]
        middle.loglog(lengths, [row["growth_at_transition"] for row in own], "o-", color=colour, label=attention)
    own = [row for row in rows if row["spinodal_distance"] is not None]
    right.loglog(
        [row["length"] for row in own], [row["spinodal_distance"] for row in own], "o-", color=RED, label="softmax"
    )
    left.set_xlabel("load / critical load")
    left.set_ylabel("susceptibility / its value without data")
    left.legend(fontsize=7)
    for axes in (middle, right):
        axes.set_xticks(SIZES["softmax"], [str(length) for length in SIZES["softmax"]])
        axes.minorticks_off()
    middle.set_xlabel("positions L = tokens V")
    middle.set_ylabel("the same at the transition")
    middle.legend()
    right.set_xlabel("positions L = tokens V")
    right.set_ylabel("spinodal / critical load - 1")
    right.legend()
    return figure


def main(folder: tyro.conf.Positional[Path], largest: int = 256) -> None:
    """Write precursor.json, precursor.png and precursor.svg into a new folder, and print a line per size."""
    folder = choose_folder(folder, "precursor", "precursor")
    with written_whole(folder) as scratch:
        rows = study({name: [size for size in sizes if size <= largest] for name, sizes in SIZES.items()})
        write_json(scratch / "precursor.json", {"rows": rows})
        save(draw(rows), scratch, "precursor")
    for row in rows:
        spinodal = "" if row["spinodal_distance"] is None else f", spinodal {row['spinodal_distance']:+.1%} beyond"
        growth = row["growth_at_transition"]
        print(f"{row['attention']}, L = V = {row['length']}: susceptibility x {growth:.3g} at the transition{spinodal}")


if __name__ == "__main__":
    tyro.cli(main)
