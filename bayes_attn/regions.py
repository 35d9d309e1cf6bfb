"""Regions of the plane: which phase is stable, and where both are, over any two settings of the theory."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from bayes_attn.errors import InvalidInput
from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory import Transition, transitions

if TYPE_CHECKING:
    import xarray as xr

AXES = ("load", "field", "length", "vocab", "logit_scale")
REGIONS = ("disordered", "coexistence", "copy")
"""What the codes 0, 1, 2 of `region` stand for: only the disordered phase, both of them (one metastable, or equal at
the critical load), only the copy phase. Without a first-order transition the border is where the copy mass rises."""
UNKNOWN = -1
CHUNK = 16
"""Settings solved between two reports of progress."""
MAPS = {
    "critical_load": "load of the transition",
    "spinodal_low": "load at which the copy phase appears",
    "spinodal_high": "load at which the disordered phase ends",
    "barrier": "barrier at the transition, in kT",
    "steepest_load": "load about which the rise of the copy mass centres",
}


def phase_diagram(
    build: Callable[..., CopyPosterior],
    axes: Mapping[str, Float[np.ndarray, " value"]],
    load: float | None = None,
    field: float = 0.0,
    progress: Callable[[float], None] | None = None,
) -> "xr.Dataset":
    """Regions over two axes out of load, field, length, vocab and logit_scale.

    Parameters
    ----------
    build: called with the axes' values by name (all but load and field), gives the posterior.
    axes: two of `AXES` with increasing values.
    load, field: where they are no axis; the default load is that of the transition of `build()`.
    progress: called with the fraction done.

    Returns
    -------
    A dataset with `region` (codes of `REGIONS`, -1 where the theory has no answer) over both axes, and `critical_load`,
    `spinodal_low`, `spinodal_high`, `barrier`, `steepest_load` and `first_order` over all but the load. NaN where one
    does not apply.

    Raises
    ------
    InvalidInput: not two axes, an unknown one, values that do not increase, or no theory for the posterior.
    ArithmeticError: no default load was found.
    """
    import xarray as xr

    _check(axes)
    others = {name: values for name, values in axes.items() if name != "load"}
    shape = tuple(len(values) for values in others.values())
    cells = [
        dict(zip(others, point, strict=True))
        for point in np.array(np.meshgrid(*others.values(), indexing="ij")).reshape(len(others), -1).T.tolist()
    ]
    if load is None and "load" not in axes:
        load = transitions([build()], [field])[0].steepest_load
    found: list[Transition | None] = []
    for start in range(0, len(cells), CHUNK):
        found += _solve(build, cells[start : start + CHUNK], field)
        if progress is not None:
            progress(min(1.0, (start + CHUNK) / len(cells)))
    maps = {name: np.array([_value(one, name) for one in found]).reshape(shape) for name in MAPS}
    first = np.array([one is not None and one.order == "first" for one in found]).reshape(shape)
    data = xr.Dataset(
        {name: (list(others), values, {"long_name": MAPS[name]}) for name, values in maps.items()},
        coords={name: np.asarray(values) for name, values in axes.items()},
    )
    data["first_order"] = (list(others), first)
    at = data["load"] if "load" in axes else xr.DataArray(load)
    border_low = data["spinodal_low"].where(data["first_order"], data["steepest_load"])
    border_high = data["spinodal_high"].where(data["first_order"], data["steepest_load"])
    region = xr.where(at < border_low, 0, xr.where(at <= border_high, 1, 2))
    region = xr.where(region == 1, xr.where(data["first_order"], 1, 2), region)
    data["region"] = region.where(data["steepest_load"].notnull(), UNKNOWN).astype(np.int8).transpose(*axes)
    data["region"].attrs = {"long_name": "phases", "codes": ", ".join(f"{i} {name}" for i, name in enumerate(REGIONS))}
    data.attrs = {"field": field} if "field" not in axes else {}
    if load is not None and "load" not in axes:
        data.attrs["load"] = load
    return data


def _check(axes: Mapping[str, Float[np.ndarray, " value"]]) -> None:
    if len(axes) != 2:
        raise InvalidInput(f"phase_diagram: `axes` must be two, got {', '.join(axes) or 'none'}.")
    for name, values in axes.items():
        if name not in AXES:
            raise InvalidInput(f"phase_diagram: `axes` must be among {', '.join(AXES)}, got {name!r}.")
        if np.ndim(values) != 1 or len(values) < 2 or not np.all(np.diff(values) > 0):
            rule = "must have at least two values, increasing"
            raise InvalidInput(f"phase_diagram: axis `{name}` {rule}, got {np.asarray(values).tolist()}.")
        if name in ("length", "vocab") and not np.all(np.asarray(values) == np.round(values)):
            raise InvalidInput(f"phase_diagram: axis `{name}` must hold integers, got {np.asarray(values).tolist()}.")


def _solve(build: Callable[..., CopyPosterior], cells: list[dict[str, Any]], field: float) -> list[Transition | None]:
    posteriors, fields = [], []
    for cell in cells:
        whole = {name: int(value) for name, value in cell.items() if name in ("length", "vocab")}
        posteriors.append(build(**{name: value for name, value in (cell | whole).items() if name != "field"}))
        fields.append(cell.get("field", field))
    try:
        return list(transitions(posteriors, fields))
    except ArithmeticError:
        return [_one(posterior, at) for posterior, at in zip(posteriors, fields, strict=True)]


def _one(posterior: CopyPosterior, field: float) -> Transition | None:
    try:
        return transitions([posterior], [field])[0]
    except ArithmeticError:
        return None


def _value(found: Transition | None, name: str) -> float:
    value = None if found is None else getattr(found, name)
    return np.nan if value is None else value
