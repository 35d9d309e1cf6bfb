"""Question: how much accuracy per second does the quadrature of the softmax row law buy, against plain sampling?

At the copy branch of coexistence, the cumulant Lambda(t, u) and the mean copy mass of a row, by quadrature at two
resolutions and by plain sampling of rows with several numbers of draws, in one run. The quadrature builds its table
once per length and logit scale (`seconds_once`); sampling draws its rows each time. The reference is the quadrature at
1.5 times the resolution. Prints JSON.

    uv run python benchmarks/row_law.py
"""

import json
import os
import time
from collections.abc import Callable

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import numpy as np

from bayes_attn import CopyTask, Population, theory
from bayes_attn.theory.row_law import RowLaw, RowMoments, row_law

REPEATS = 8


def seconds(run: Callable[[], object]) -> float:
    """Median time of a call, after one that compiles."""
    run()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


@jax.jit
def evaluate(law: RowLaw, t: jax.Array, u: jax.Array) -> RowMoments:
    return law.moments(t, u)


def quadrature(length: int, resolution: float, t: float, u: float) -> tuple[float, float]:
    """(Lambda, mean copy mass)."""
    found = evaluate(row_law(length, 1.0, resolution), jax.numpy.asarray(t), jax.numpy.asarray(u))
    return float(found.cumulant), float(found.mean[0])


def sampled(length: int, draws: int, t: float, u: float, seed: int) -> tuple[float, float]:
    """The same from plain draws of rows."""
    weights = np.exp(np.random.default_rng(seed).standard_normal((draws, length)))
    weights /= weights.sum(1, keepdims=True)
    exponent = t * weights[:, 0] + u * (weights**2).sum(1)
    boost = np.exp(exponent - exponent.max())
    return float(exponent.max() + np.log(boost.mean())), float(np.average(weights[:, 0], weights=boost))


def compare(length: int, vocab: int) -> list[dict[str, float | str]]:
    """One row per method."""
    posterior = Population(CopyTask(length, vocab))
    found = theory.transition(posterior)
    curve = theory.softmax.s_curve(posterior)
    nearest = int(np.argmin(np.abs(np.asarray(curve.copy_mass) - (found.copy_mass_copy or 0.5))))
    t, u = float(curve.conjugate_copy_mass[nearest]), float(curve.conjugate_participation[nearest])
    at = jax.numpy.asarray(t), jax.numpy.asarray(u)
    exact = np.array(quadrature(length, 1.5, t, u))
    size = {"length": length, "vocab": vocab}
    rows: list[dict[str, float | str]] = []
    for resolution in (0.75, 1.0):
        row_law.cache_clear()
        began = time.perf_counter()
        law = jax.device_put(row_law(length, 1.0, resolution))
        once = {"seconds_once": time.perf_counter() - began}
        error = np.abs(np.array(quadrature(length, resolution, t, u)) - exact)
        took = seconds(lambda law=law: jax.block_until_ready(evaluate(law, *at)))
        rows.append(size | {"method": f"quadrature, resolution {resolution}", "seconds": took} | once | _errors(error))
    for draws in (8_000, 80_000, 800_000):
        errors = np.array([np.array(sampled(length, draws, t, u, seed)) - exact for seed in range(REPEATS)])
        took = seconds(lambda draws=draws: sampled(length, draws, t, u, 0))
        error = np.sqrt(np.mean(errors**2, axis=0))
        rows.append(size | {"method": f"plain sampling, {draws} rows", "seconds": took} | _errors(error))
    return rows


def _errors(error: np.ndarray) -> dict[str, float]:
    return {"error_cumulant": float(error[0]), "error_copy_mass": float(error[1])}


if __name__ == "__main__":
    print(json.dumps([row for size in ((16, 16), (32, 16)) for row in compare(*size)], indent=1))
