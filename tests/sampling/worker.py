"""A process of its own for the tests of running: one run of the conjugate Gaussian into a folder."""

import itertools
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "bayes_attn_test_cache"))

import jax

if "--process" in sys.argv:  # before anything that touches a device, as importing blackjax does
    number, port = sys.argv[sys.argv.index("--process") + 1 :][:2]
    jax.config.update("jax_compilation_cache_dir", None)
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=int(number))

from gaussian import Gaussian

from bayes_attn import InvalidInput, Schedule, Starts, sample
from bayes_attn.sampling import run, temperature_path


def main() -> None:
    folder, arguments = Path(sys.argv[1]), sys.argv[2:]
    posterior = Gaussian()
    starts, path = Starts((posterior.sample_prior,), 4), temperature_path(1.0)
    if "--memory" in arguments:
        measure_memory(folder, posterior, starts)
        return
    progress = None
    if "--slowly" in arguments:
        run.CHECKPOINT_SECONDS = 0.05

        def progress(_done: int, _total: int) -> None:
            time.sleep(0.05)

    schedule = Schedule(warmup=700, draws=120, thin=10)
    if "--all-devices" in arguments:
        for devices in (1, 2, 4):
            for mode in ("side-by-side", "one-by-one"):
                sample(
                    posterior, path, starts, schedule, 4, rungs="auto", folder=folder / f"{mode}-{devices}",
                    devices=devices, one_by_one=mode == "one-by-one",
                )  # fmt: skip
        pair = [Gaussian(center=jax.numpy.asarray(center)) for center in (1.5, -0.5)]
        for devices in (1, 2):
            sample(
                pair, path, starts, Schedule(60, 4, 10), 4, rungs=5, folder=folder / f"two-posteriors-{devices}",
                devices=devices,
            )  # fmt: skip
        try:
            sample(pair, path, starts, Schedule(60, 4, 10), 4, rungs=5, devices=4)
        except InvalidInput as refusal:
            (folder / "refusal.txt").write_text(str(refusal))
        return
    sample(
        posterior, path, starts, schedule, 4, progress, rungs="auto", folder=folder, resume="--resume" in arguments,
        one_by_one="--one-by-one" in arguments,
    )  # fmt: skip


def measure_memory(folder: Path, posterior: Gaussian, starts: Starts) -> None:
    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def go(draws: int, to: Path) -> list[float]:
        times = [time.perf_counter()]
        sample(
            posterior, temperature_path(1.0), starts, Schedule(500, draws, 10), 4,
            lambda _done, _total: times.append(time.perf_counter()), rungs=16, folder=to,
        )  # fmt: skip
        return [after - before for before, after in itertools.pairwise(times)]

    go(100, folder.with_suffix(".short"))
    before = peak()
    compiled = run._chunk._cached._cache_size()
    seconds = go(2500, folder)
    recorded = seconds[len(seconds) // 4 :]
    half = len(recorded) // 2
    report = {
        "written_megabytes": sum(file.stat().st_size for file in folder.glob("*.npy")) / 2**20,
        "grown_megabytes": peak() - before,
        "chunks_compiled": run._chunk._cached._cache_size() / compiled,
        "later_over_earlier": sum(recorded[half:]) / sum(recorded[:half]),
    }
    folder.with_suffix(".json").write_text(json.dumps(report))


main()
