"""Question: where does the line of first-order transitions end, and from which size on is there one without a field?

The critical end point (load, field) of softmax attention (theory, section 5) along V = L, at V = 8 and V = 16, and at
several logit scales with V = L. Without a field the transition is first-order where the end point's field is positive.
And the other way round: the vocabularies with a first-order transition at a fixed length.

What came out: first-order from L = 13 along V = L and at V = 16, from L = 15 at V = 8; along V = L from L = 14, 13, 13
and 12 at logit scales 0.5, 0.7, 1.4 and 2. So the size at which the transition becomes first-order hardly depends on
the logit scale, though the loads do. At a fixed length there is a largest vocabulary as well as a smallest: V = 11 to
25, 9 to 32, 7 to 45, 4 to 99, 2 to 160 and 2 to 476 at L = 13, 14, 16, 24, 32 and 64. With very many tokens the rows'
entropy counts for little against the V^2 value weights, and m grows continuously from a load of about 1.

    uv run python experiments/end_of_line.py runs/end_of_line
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import matplotlib.pyplot as plt
import numpy as np
import tyro
from matplotlib.figure import Figure

from bayes_attn import CopyTask, Population, theory
from bayes_attn.workflow.figures import BLUE, GREEN, GREY, ORANGE, RED, save
from bayes_attn.workflow.store import choose_folder, write_json, written_whole

Family = Callable[[int], Population]
FAMILIES: dict[str, Family] = {
    "V = L": lambda length: Population(CopyTask(length, length)),
    "V = 8": lambda length: Population(CopyTask(length, 8)),
    "V = 16": lambda length: Population(CopyTask(length, 16)),
    **{
        f"V = L, σ_s = {scale:g}": lambda length, scale=scale: Population(CopyTask(length, length), logit_scale=scale)
        for scale in (0.5, 0.7, 1.4, 2.0)
    },
}
LENGTHS = (8, 12, 16, 24, 32)
WINDOW_LENGTHS = (12, 13, 14, 16, 24, 32, 64)


def smallest(family: Family, largest: int) -> int | None:
    """Smallest L of a family with a first-order transition, by bisection; None if there is none up to `largest`."""
    low, high = 3, largest
    if theory.transition(family(high)).order != "first":
        return None
    if theory.transition(family(low)).order == "first":
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if theory.transition(family(middle)).order == "first" else (middle, high)
    return high


def window(length: int, largest: int, points: int = 16) -> tuple[int, int] | None:
    """Smallest and largest V with a first-order transition at a length; None if there is none up to `largest`."""

    def first(vocab: int) -> bool:
        return theory.transition(Population(CopyTask(length, vocab))).order == "first"

    sizes = np.unique(np.round(np.geomspace(2, largest, points)).astype(int)).tolist()
    orders = [found.order for found in theory.transitions([Population(CopyTask(length, v)) for v in sizes])]
    inside = [i for i, order in enumerate(orders) if order == "first"]
    if not inside:
        return None

    def border(outside: int, within: int) -> int:
        while abs(within - outside) > 1:
            middle = (outside + within) // 2
            outside, within = (outside, middle) if first(middle) else (middle, within)
        return within

    low = sizes[0] if inside[0] == 0 else border(sizes[inside[0] - 1], sizes[inside[0]])
    high = sizes[-1] if inside[-1] == len(sizes) - 1 else border(sizes[inside[-1] + 1], sizes[inside[-1]])
    return low, high


def study(names: list[str], lengths: list[int]) -> list[dict[str, Any]]:
    """One entry per family: its smallest first-order size and its end points."""
    rows = []
    for name in names:
        family = FAMILIES[name]
        points = [(length, theory.end_point(family(length))) for length in lengths]
        rows.append(
            {
                "family": name,
                "smallest_first_order_length": smallest(family, max(lengths)),
                "points": [{"length": length} | vars(point) for length, point in points],
            }
        )
    return rows


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Field of the end point against length."""
    figure, axes = plt.subplots(figsize=(6.8, 4.4))
    colours = [RED, BLUE, GREEN, ORANGE, "#CC79A7", "#56B4E9", "#F0E442"]
    for row, colour in zip(rows, colours, strict=False):
        lengths, fields = zip(*((point["length"], point["field"]) for point in row["points"]), strict=True)
        axes.plot(
            lengths,
            fields,
            "o-",
            ms=4,
            color=colour,
            label=f"{row['family']}: first-order from L = {row['smallest_first_order_length']}",
        )
    axes.axhline(0, color=GREY, lw=0.8)
    axes.set_xlabel("positions L")
    axes.set_ylabel("field of the critical end point (kT per row)")
    axes.legend(fontsize=8)
    return figure


def main(folder: tyro.conf.Positional[Path], small: bool = False) -> None:
    """Write end_of_line.json, .png and .svg into a new folder, and print a line per family."""
    folder = choose_folder(folder, "end_of_line", "end_of_line")
    with written_whole(folder) as scratch:
        rows = study(["V = L"] if small else list(FAMILIES), [12, 16] if small else list(LENGTHS))
        windows = {length: window(length, 12 * length) for length in (() if small else WINDOW_LENGTHS)}
        write_json(scratch / "end_of_line.json", {"rows": rows, "vocabularies": windows})
        save(draw(rows), scratch, "end_of_line")
    for row in rows:
        ends = ", ".join(f"L = {p['length']}: ({p['load']:.4g}, {p['field']:.3g})" for p in row["points"])
        first = row["smallest_first_order_length"]
        print(f"{row['family']}: first-order from L = {first}; end points (load, field) {ends}")
    for length, ends in windows.items():
        print(f"L = {length}: first-order for V = {'none' if ends is None else f'{ends[0]} to {ends[1]}'}")


if __name__ == "__main__":
    tyro.cli(main)
