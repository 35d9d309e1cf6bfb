"""Sampling alone: one path, any sampler, streamed to disk and resumable."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bayes_attn import theory
from bayes_attn.diagnostics import Estimate, estimate, to_datatree
from bayes_attn.errors import InvalidInput, require
from bayes_attn.free_energy import phase_weight, stepping_stone
from bayes_attn.posterior import CopyPosterior, DataSet, Population
from bayes_attn.sampling import (
    Controls,
    Samples,
    Schedule,
    Starts,
    coexistence_path,
    field_path,
    four_legs,
    load_path,
    pilot,
    sample,
    temperature_path,
)
from bayes_attn.sampling import Path as ControlPath
from bayes_attn.sampling.samples import INDEPENDENT
from bayes_attn.theory import Transition
from bayes_attn.workflow.settings import SampleSettings, model_json, population
from bayes_attn.workflow.store import RESULTS, choose_folder, load_tokens, write_json

PATHS = ("temperature", "load", "field", "coexistence", "four-legs")
RECORDS = "records"
"""The folder below the run's where draws are streamed to."""
FIELD_MARGIN = 1.25
"""How far four legs go, in units of the end point's field."""


@dataclass(frozen=True)
class _Way:
    """A path and what is known about phases on it."""

    path: ControlPath
    targets: list[float] | None
    """Positions on the path at which replicas count as being in a phase; None: everywhere."""
    borders: tuple[float, float] | None
    """Copy masses below and above which they are in one; None where there are no phases."""
    cut: float | None


def run_sample(
    settings: SampleSettings, progress: Callable[[str, float], None] | None = None
) -> tuple[dict[str, Any], Path]:
    """Run one path and write its folder.

    Returns
    -------
    The content of results.json, and the folder: records/ with everything that was drawn, as .npy files with the axes
    (chain, scan or draw, rung, ...); results.json; and posterior.nc, an arviz DataTree.

    Raises
    ------
    InvalidInput: any setting is bad.
    """
    tell = progress or (lambda _stage, _fraction: None)
    began = time.perf_counter()
    base = population(settings)
    require(settings.path in PATHS, "sample", "path", f"must be one of {', '.join(PATHS)}", settings.path)
    goes_with_field = settings.path in ("field", "four-legs")
    rule = "goes with path field or four-legs"
    require(settings.field is None or goes_with_field, "sample", "field", rule, settings.field)
    rule = "must be set with path field"
    require(settings.path != "field" or settings.field is not None, "sample", "field", rule, settings.field)
    for name in ("load", "field"):
        value = getattr(settings, name)
        require(value is None or bool(np.isfinite(value)), "sample", name, "must be a finite number", value)
    require((settings.load or 0.0) >= 0, "sample", "load", "must be at least 0", settings.load)
    rungs = _rungs(settings.rungs)
    alone = rungs == 1
    schedule = Schedule(settings.warmup, settings.draws, settings.thin, settings.max_steps)
    posterior: CopyPosterior = base
    if settings.tokens is not None:
        tokens = load_tokens(settings.tokens, base.task)
        posterior = DataSet(
            tokens, base.task, settings.attention, settings.logit_scale, settings.value_scale, settings.noise,
            prior=type(base.prior),
        )  # fmt: skip
    folder = _folder(settings)
    oracle = settings.sampler in INDEPENDENT
    require(not (oracle and settings.resume), "sample", "resume", f"is not for the sampler {settings.sampler}", True)

    transition = _theory(base)
    tell("theory", 1.0)
    way = _way(settings, base, posterior, transition)
    tell("sampling", 0.0)
    ladder: ControlPath | Controls = way.path
    if alone:
        ladder = way.path.rungs(np.array([float(len(way.path.legs)) if settings.path != "coexistence" else 0.0]))
    elif oracle:
        count = len(way.path.legs) + 1 if rungs == "auto" else int(rungs)
        ladder = way.path.rungs(np.linspace(0, len(way.path.legs), count))
    samples = sample(
        posterior,
        ladder,
        Starts((posterior.sample_prior, posterior.sample_copy), settings.chains),
        schedule,
        settings.seed,
        lambda done, total: tell("sampling", done / total),
        rungs=None if isinstance(ladder, Controls) else rungs,
        sampler=settings.sampler,
        precision=settings.precision,
        folder=None if oracle else folder / RECORDS,
        resume=settings.resume,
    )
    results = model_json(settings) | _results(settings, posterior, way, samples, time.perf_counter() - began)
    folder.mkdir(parents=True, exist_ok=True)
    if settings.prior != "iid":
        logits = jax.vmap(jax.vmap(jax.vmap(posterior.prior.logits)))(samples.params)
        samples = replace(samples, params=np.asarray(logits))
    positions = {name: np.arange(settings.length) for name in ("query", "key")}
    tree = to_datatree(samples, "logits", ["query", "key"], positions, along="rung")
    tree.attrs["results"] = json.dumps(results)
    partial = folder / ".posterior.nc.partial"
    tree.to_netcdf(partial, engine="netcdf4")
    partial.replace(folder / "posterior.nc")
    write_json(folder / RESULTS, results)
    return results, folder


def _rungs(text: str) -> int | str:
    if text == "auto":
        return text
    require(text.isdigit() and int(text) > 0, "sample", "rungs", 'must be "auto" or a positive integer', text)
    return int(text)


def _folder(settings: SampleSettings) -> Path:
    if settings.resume:
        rule = "must be the folder of the run to resume"
        require(
            settings.out is not None and (settings.out / RECORDS).is_dir(), "sample", "out", rule, str(settings.out)
        )
        assert settings.out is not None
        return settings.out
    name = f"sample-{settings.path}-{settings.sampler}-L{settings.length}-V{settings.vocab}-seed{settings.seed}"
    return choose_folder(settings.out, name, "sample")


def _theory(base: Population) -> Transition | None:
    """The transition, or None where there is no theory for the model."""
    try:
        return theory.transition(base)
    except InvalidInput:
        return None


def _way(settings: SampleSettings, base: Population, posterior: CopyPosterior, transition: Transition | None) -> _Way:
    load = settings.load
    if load is None:
        require(transition is not None, "sample", "load", "must be set where there is no theory", None)
        assert transition is not None
        load = transition.steepest_load
    if settings.path == "coexistence":
        rule = "is where the line of coexistence begins; with path coexistence it is not set"
        require(settings.load is None, "sample", "load", rule, settings.load)
        first = transition is not None and transition.order == "first"
        rule = "must not be coexistence where the theory has no first-order transition"
        require(first, "sample", "path", rule, settings.path)
        return _with_phases(coexistence_path(*theory.way_to_end(base)), [0.0], transition)
    if settings.path == "four-legs":
        first = transition is not None and transition.order == "first"
        if first and settings.field is None:
            field = FIELD_MARGIN * float(theory.way_to_end(base)[1][-1])
        elif settings.field is None:
            found = pilot(posterior, load, posterior.sample_prior, posterior.sample_copy, settings.seed)
            quarter = (found.high - found.low) / 4
            borders = (found.low + quarter, found.high - quarter)
            return _Way(found.path, [0.0, 4.0], borders, found.cut)
        else:
            field = settings.field
        require(first, "sample", "field", "must not be set where the theory has no first-order transition", field)
        assert transition is not None
        assert transition.copy_mass_barrier is not None
        path = four_legs(load, field, transition.copy_mass_barrier)
        return _with_phases(path, [0.0, 4.0], transition)
    if settings.path == "temperature":
        path = temperature_path(load)
    elif settings.path == "field":
        assert settings.field is not None
        path = field_path(load, [0.0, settings.field])
    else:
        path = load_path([0.0, load])
    return _with_phases(path, None, transition)


def _with_phases(path: ControlPath, targets: list[float] | None, transition: Transition | None) -> _Way:
    if transition is None or transition.order != "first":
        return _Way(path, targets, None, None)
    return _Way(path, targets, transition.borders, transition.copy_mass_barrier)


def _finite(value: float | None) -> float | None:
    """None for what a run too short to know it gives as NaN or infinity."""
    return value if value is not None and np.isfinite(value) else None


def _results(
    settings: SampleSettings, posterior: CopyPosterior, way: _Way, samples: Samples, seconds: float
) -> dict[str, Any]:
    swapped = samples.sampler not in INDEPENDENT and samples.rungs > 1
    rungs = None
    if way.targets is not None and swapped:
        rungs = [int(np.flatnonzero(samples.position == target)[0]) for target in way.targets]
    ratios = stepping_stone(samples) if swapped and settings.chains > 1 else None
    weight: tuple[float, float] | None = None
    if settings.path == "four-legs" and ratios is not None:
        weight = phase_weight(ratios)
    elif way.cut is not None and settings.path == "coexistence":
        at_target = estimate((samples.order_parameters[0][:, :, 0] > way.cut).astype(float))
        weight = (at_target.mean, at_target.error)
    rows = []
    for rung in range(samples.rungs):
        found: Estimate = estimate(np.asarray(samples.order_parameters[0][:, :, rung]))
        row: dict[str, float | None] = {
            name: float(np.asarray(getattr(samples.path, name))[rung]) for name in Controls._fields[:3]
        }
        row |= {"copy_mass": found.mean, "copy_mass_error": found.error, "ess": found.ess, "rhat": found.rhat}
        row["participation"] = float(np.mean(samples.order_parameters[1][:, :, rung]))
        row["log_ratio"] = None if ratios is None else float(ratios.value[rung])
        row["log_ratio_error"] = None if ratios is None else float(ratios.error[rung])
        rows.append({name: _finite(value) for name, value in row.items()})
    return {
        "posterior": "population" if isinstance(posterior, Population) else "dataset",
        "path": settings.path,
        "sampler": samples.sampler,
        "precision": settings.precision,
        "chains": settings.chains,
        "warmup": settings.warmup,
        "scans": samples.schedule.scans,
        "max_steps": settings.max_steps,
        "rungs": samples.rungs,
        "rounds": [one._asdict() for one in samples.rounds],
        "round_trips": samples.round_trips() if swapped else None,
        "phase_round_trips": None
        if way.borders is None or not swapped
        else samples.phase_round_trips(*way.borders, rungs),
        "communication_barrier": samples.communication_barrier if swapped else None,
        "swap_rates": samples.swap_rate.tolist() if swapped else None,
        "local_barrier": samples.local_barrier.tolist() if swapped else None,
        "round_trip_rate": samples.round_trip_rate if swapped else None,
        "predicted_round_trip_rate": samples.predicted_round_trip_rate if swapped else None,
        "round_trip_rate_ratio": _finite(samples.round_trip_rate_ratio) if swapped else None,
        "copy_weight": None if weight is None else _finite(weight[0]),
        "copy_weight_error": None if weight is None else _finite(weight[1]),
        "log_evidence": None if samples.log_evidence is None else samples.log_evidence.mean(axis=0).tolist(),
        "rows": rows,
        "acceptance": samples.acceptance.mean(axis=(0, 1)).tolist(),
        "divergences": int(samples.divergent.sum()),
        "non_finite": int(samples.non_finite.sum()),
        "advice": [advice.value for advice in samples.advice()],
        "seed": settings.seed,
        "seconds": seconds,
    }
