"""The phase-diagram job: regions over two settings, as netCDF, JSON and a figure."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bayes_attn import theory
from bayes_attn.errors import InvalidInput
from bayes_attn.posterior import Population
from bayes_attn.regions import AXES, MAPS, REGIONS, UNKNOWN, phase_diagram
from bayes_attn.theory import EndPoint
from bayes_attn.workflow.figures import BLUE, GREY, ORANGE, RED, save
from bayes_attn.workflow.settings import PhaseDiagramSettings, model_json, population
from bayes_attn.workflow.store import choose_folder, write_json, written_whole

NAME = "phase_diagram"
LABELS = {
    "load": "load α (dimensionless data amount)",
    "field": "field h (kT per row)",
    "length": "positions L",
    "vocab": "tokens V",
    "logit_scale": "logit scale σ_s",
}
COUNTS = {"load": 121, "field": 41, "length": 17, "vocab": 17, "logit_scale": 17}
RANGES = {"length": (8, 40), "vocab": (8, 40), "logit_scale": (0.5, 2.0)}
COLOURS = ("#DCE6EE", "#F6DDA8", "#CFE8DC")
"""Of the regions."""


def run_phase_diagram(
    settings: PhaseDiagramSettings, progress: Callable[[str, float], None] | None = None
) -> tuple[dict[str, Any], Path]:
    """Compute a phase diagram and write its folder.

    Returns
    -------
    The content of phase_diagram.json, and the folder with it, phase_diagram.nc, .png and .svg.

    Raises
    ------
    InvalidInput: any setting is bad; nothing has been written then.
    ArithmeticError: the theory has no answer for the settings themselves.
    """
    tell = progress or (lambda _stage, _fraction: None)
    base = population(settings)
    names = [_axis_name(settings.x, "x"), _axis_name(settings.y, "y")]
    if names[0] == names[1]:
        raise InvalidInput(f"phase-diagram: `y` must differ from `x`, got {settings.y!r}.")
    if "field" in names and settings.attention == "linear":
        raise InvalidInput("phase-diagram: `x` and `y` must not be the field for linear attention, got 'field'.")
    if "vocab" in names and settings.token_frequencies is not None:
        raise InvalidInput("phase-diagram: `token_frequencies` does not go with an axis vocab (--zipf does).")
    for name, default in (("load", None), ("field", 0.0)):
        if name in names and getattr(settings, name) != default:
            raise InvalidInput(
                f"phase-diagram: `{name}` must not be set where it is an axis, got {getattr(settings, name)}."
            )
    tell("theory", 0.0)
    end = theory.end_point(base) if "field" in names else None
    texts = dict(zip(names, (settings.x, settings.y), strict=True))
    axes = {name: _values(text, name, end) for name, text in texts.items() if ":" in text or name != "load"}
    if "load" not in axes and "load" in names:
        axes["load"] = _loads(settings, axes, end)
    axes = {name: axes[name] for name in names}
    described = "-".join(names)
    folder = choose_folder(
        settings.out, f"phase-diagram-{described}-L{settings.length}-V{settings.vocab}", "phase-diagram"
    )
    with written_whole(folder) as scratch:
        data = phase_diagram(
            partial(_build, settings), axes, settings.load, settings.field, lambda done: tell("theory", done)
        )
        if end is not None:
            data.attrs |= {f"end_point_{name}": value for name, value in asdict(end).items()}
        content = _json(settings, data, end)
        data.attrs["settings"] = json.dumps(model_json(settings))
        for name in axes:
            data[name].attrs["long_name"] = LABELS[name]
        data.to_netcdf(scratch / f"{NAME}.nc", engine="netcdf4")
        save(draw(data, names, settings, end), scratch, NAME)
        write_json(scratch / f"{NAME}.json", content)
    return content, folder


def _build(settings: PhaseDiagramSettings, **changes: Any) -> Population:
    return population(replace(settings, **changes))


def _axis_name(text: str, option: str) -> str:
    name = text.split(":", maxsplit=1)[0].replace("-", "_")
    if name not in AXES:
        allowed = ", ".join(axis.replace("_", "-") for axis in AXES)
        raise InvalidInput(f"phase-diagram: `{option}` must name one of {allowed}, got {text!r}.")
    return name


def _values(text: str, name: str, end: EndPoint | None) -> Float[np.ndarray, " value"]:
    """The values of an axis, from NAME:FROM:TO:COUNT or by default."""
    words = text.split(":")[1:]
    if not words:
        low, high, count = *_range(name, end), COUNTS[name]
    else:
        try:
            low, high, count = float(words[0]), float(words[1]), int(words[2])
        except (ValueError, IndexError):
            raise InvalidInput(f"phase-diagram: an axis must be NAME or NAME:FROM:TO:COUNT, got {text!r}.") from None
        if not (np.isfinite(low) and np.isfinite(high) and low < high and 2 <= count <= 2_000 and len(words) == 3):
            rule = "must go from a number to a larger one in 2 to 2000 values"
            raise InvalidInput(f"phase-diagram: axis `{name}` {rule}, got {text!r}.")
    if name != "field" and low < 0:
        raise InvalidInput(f"phase-diagram: axis `{name}` must not be negative, got {text!r}.")
    values = np.linspace(low, high, count)
    return np.unique(np.round(values)) if name in ("length", "vocab") else values


def _range(name: str, end: EndPoint | None) -> tuple[float, float]:
    if end is not None and name == "field":
        return min(0.0, end.field) - 0.3 * abs(end.field) - 1, max(0.0, end.field) + 0.3 * abs(end.field) + 1
    return RANGES[name]


def _loads(
    settings: PhaseDiagramSettings, axes: dict[str, np.ndarray], end: EndPoint | None
) -> Float[np.ndarray, " value"]:
    """Loads that show the transition, with its spinodals, all along the other axis."""
    ((other, values),) = axes.items()
    if other == "field":
        found = [theory.transition(population(settings), float(value)) for value in (values[0], values[-1])]
    else:
        kind = int if other in ("length", "vocab") else float
        ends = [_build(settings, **{other: kind(value)}) for value in (values[0], values[-1])]
        found = theory.transitions(ends, [settings.field] * 2)
    low = min(*(one.spinodal_low or one.steepest_load for one in found), end.load if end else np.inf)
    high = max(*(one.spinodal_high or one.steepest_load for one in found), end.load if end else 0.0)
    return np.linspace(max(0.0, low - 0.2 * (high - low)), high + 0.2 * (high - low), COUNTS["load"])


def draw(data: xr.Dataset, names: list[str], settings: PhaseDiagramSettings, end: EndPoint | None) -> Figure:
    """Regions in colour; the transition as a line with its spinodals where the load or the field is an axis."""
    figure, axes = plt.subplots(figsize=(7.2, 4.8))
    x, y = (data[name].to_numpy() for name in names)
    region = data["region"].transpose(names[1], names[0]).to_numpy()
    colours, norm = ListedColormap(["white", *COLOURS]), BoundaryNorm([-1.5, -0.5, 0.5, 1.5, 2.5], 4)
    axes.pcolormesh(x, y, region, cmap=colours, norm=norm, shading="nearest", rasterized=True)
    handles: list[Any] = [Patch(color=COLOURS[i], label=name) for i, name in enumerate(REGIONS) if np.any(region == i)]
    if np.any(region == UNKNOWN):
        handles.append(Patch(facecolor="white", edgecolor=GREY, label="no answer"))
    if "load" in names:
        (other,) = (name for name in names if name != "load")
        along = data[other].to_numpy()
        styles = {"critical_load": ("-", RED, "transition"), "spinodal_low": ("--", GREY, "spinodals"),
                  "spinodal_high": ("--", GREY, None), "steepest_load": (":", BLUE, "crossover")}  # fmt: skip
        for name, (style, colour, label) in styles.items():
            values = data[name].to_numpy()
            if name == "steepest_load":
                values = np.where(data["first_order"], np.nan, values)
            if np.all(np.isnan(values)):
                continue
            pair = (values, along) if names[0] == "load" else (along, values)
            (line,) = axes.plot(*pair, style, color=colour, lw=1.5, label=label)
            handles += [line] if label else []
    if end is not None and set(names) == {"load", "field"}:
        at = {"load": end.load, "field": end.field}
        handles += axes.plot(at[names[0]], at[names[1]], "o", color=ORANGE, mec="black", label="critical end point")
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    axes.set_xlabel(LABELS[names[0]])
    axes.set_ylabel(LABELS[names[1]])
    fixed = {"length": f"L = {settings.length}", "vocab": f"V = {settings.vocab}"}
    fixed |= {"logit_scale": f"σ_s = {settings.logit_scale:g}"}
    fixed |= {
        name: f"{symbol} = {data.attrs[name]:.4g}"
        for name, symbol in (("load", "α"), ("field", "h"))
        if name in data.attrs
    }
    what = [f"{settings.attention} attention", *(text for name, text in fixed.items() if name not in names)]
    axes.set_title(", ".join(what), fontsize=10)
    axes.grid(visible=False)
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _json(settings: PhaseDiagramSettings, data: xr.Dataset, end: EndPoint | None) -> dict[str, Any]:
    """Everything in the netCDF file, as plain lists; null where something does not apply."""

    def plain(values: np.ndarray | np.floating) -> Any:
        if isinstance(values, np.ndarray) and values.ndim:
            return [plain(value) for value in values]
        return None if np.isnan(value := float(values)) else value

    return model_json(settings) | {
        "axes": {str(name): plain(data[name].to_numpy()) for name in data["region"].dims},
        "load": data.attrs.get("load"),
        "field": data.attrs.get("field"),
        "regions": list(REGIONS),
        "region": data["region"].to_numpy().tolist(),
        "map_axes": [str(name) for name in data["critical_load"].dims],
        "first_order": data["first_order"].to_numpy().tolist(),
        "end_point": None if end is None else asdict(end),
    } | {name: plain(data[name].to_numpy()) for name in MAPS}  # fmt: skip
