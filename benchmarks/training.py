"""Question: how long does a sweep of Adam over seeds, starts and data amounts take, and what does one compiled run buy?

The sweep trains every seed's data set at every amount from both starts. Its peer, in the same run, trains one network
at a time with the same compiled steps: the ratio is that of the times per network. Prints JSON.

    uv run python benchmarks/training.py
"""

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import numpy as np
import tyro

from bayes_attn import CopyTask, Population
from bayes_attn.training import Regimen, train
from bayes_attn.workflow.training_job import data_sets


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is trained."""

    length: int = 16
    vocab: int = 16
    seeds: int = 64
    amounts: int = 16
    steps: int = 2_000


def measure(sweep: Sweep) -> dict[str, float]:
    """Seconds of the sweep, without and with compiling, and of one network alone."""
    posterior = Population(CopyTask(sweep.length, sweep.vocab))
    data = np.round(np.linspace(20, 60, sweep.amounts))
    regimen = Regimen(steps=sweep.steps, every=max(1, sweep.steps // 50))
    joints = list(data_sets(posterior, sweep.seeds, int(data[-1]), 0))

    def seconds(count: int, amounts: np.ndarray, starts: tuple[str, ...]) -> float:
        began = time.perf_counter()
        train(joints[:count], amounts, replace(regimen, starts=starts))
        return time.perf_counter() - began

    first = seconds(1, data, regimen.starts)
    swept = seconds(sweep.seeds, data, regimen.starts)
    # At the amount in the middle, where counting a sequence costs what it does on average.
    middle = data[len(data) // 2 : len(data) // 2 + 1]
    seconds(1, middle, ("cold",))
    alone = seconds(1, middle, ("cold",))
    networks = sweep.seeds * sweep.amounts * len(regimen.starts)
    return {
        "networks": networks,
        "seconds": swept,
        "seconds_compiling": first - swept / sweep.seeds,
        "seconds_per_network": swept / networks,
        "seconds_per_network_alone": alone,
        "speedup": alone * networks / swept,
    }


def main(sweep: Sweep) -> None:
    """Measure and print.

    Parameters
    ----------
    sweep: what is trained.
    """
    print(json.dumps(asdict(sweep) | measure(sweep), indent=1))


if __name__ == "__main__":
    main(tyro.cli(Sweep, description=__doc__))
