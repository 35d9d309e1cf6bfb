"""Question: how accurate is the theory of softmax attention, and how long does it take?

For several sizes: wall time of `bayes-attn theory` as a new process, with an empty and with a filled compilation cache,
beside that of a process that only imports JAX; the numerical errors that it claims; and the change when every
grid is refined by half. Prints JSON.

    uv run python benchmarks/theory_accuracy.py
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["JAX_ENABLE_X64"] = "1"

from bayes_attn import CopyTask, Population, theory
from bayes_attn.theory.coexistence import coexistence, folds

SIZES = ((16, 16), (24, 24), (32, 32), (256, 256), (1024, 1024), (1024, 8))


def finer(length: int, vocab: int) -> tuple[float, float]:
    """(critical load, barrier) at 1.5 times the resolution."""
    curve = theory.softmax.s_curve(Population(CopyTask(length, vocab)), 1.5)
    found = coexistence(folds(curve, curve.load), float(length))
    assert found is not None
    return found.critical, found.barrier


def timed(command: list[str], cache: Path) -> tuple[float, str]:
    """Wall seconds and standard output of a process."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    return time.perf_counter() - began, done.stdout


def row(length: int, vocab: int) -> dict[str, float]:
    """One size."""
    command = [
        sys.executable,
        "-m",
        "bayes_attn.cli",
        "theory",
        "--json",
        "--length",
        str(length),
        "--vocab",
        str(vocab),
    ]
    with tempfile.TemporaryDirectory() as folder:
        cold, _ = timed(command, Path(folder))
        warm, output = timed(command, Path(folder))
        bare, _ = timed([sys.executable, "-c", "import jax; jax.devices()"], Path(folder))
    found, (load, barrier) = json.loads(output), finer(length, vocab)
    return {
        "length": length,
        "vocab": vocab,
        "critical_load": found["critical_load"],
        "claimed_relative_error": found["critical_load_error"] / found["critical_load"],
        "change_when_refined": abs(load / found["critical_load"] - 1),
        "barrier": found["barrier"],
        "barrier_claimed_relative_error": found["barrier_error"] / found["barrier"],
        "barrier_change_when_refined": abs(barrier / found["barrier"] - 1),
        "seconds_cold": cold,
        "seconds_warm": warm,
        "seconds_import_jax": bare,
    }


if __name__ == "__main__":
    print(json.dumps([row(*size) for size in SIZES], indent=1))
