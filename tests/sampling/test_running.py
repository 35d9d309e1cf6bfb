"""Runs that are killed, resumed, streamed to disk, spread over devices and over processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path as File

import jax
import numpy as np
import pytest
from gaussian import Gaussian

from bayes_attn import InvalidInput, Samples, Schedule, Starts, load_ladder, sample
from bayes_attn.sampling import recorder, temperature_path

WORKER = File(__file__).parent / "worker.py"
SCHEDULE = Schedule(warmup=700, draws=120, thin=10)


def start(folder: File, *arguments: str, devices: int = 1) -> subprocess.Popen:
    """A process of its own, with emulated devices; what it complains of goes beside the folder."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags}
    with folder.with_suffix(".log").open("a") as log:
        return subprocess.Popen([sys.executable, str(WORKER), str(folder), *arguments], env=environment, stderr=log)


def finish(process: subprocess.Popen) -> None:
    assert process.wait(timeout=300) == 0, File(process.args[2]).with_suffix(".log").read_text()[-3000:]


def contents(folder: File) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.npy"))}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> File:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    finish(start(folder))
    return folder


def test_a_killed_run_resumes_to_the_last_bit(uninterrupted: File, tmp_path: File) -> None:
    """SIGKILL, which nothing can catch, at many moments: at the start, while it warms up and while it records."""
    folder = tmp_path / "killed"
    kills, moments = 0, iter([0.0, 0.6, 0.1, 0.4])
    process = start(folder, "--slowly")
    for moment in moments:
        # Count from the moment that there is something to resume.
        deadline = time.monotonic() + 120
        while process.poll() is None and not (folder / recorder.DESCRIPTION).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(moment + 2.5 * (kills > 0))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        process = start(folder, "--resume", "--slowly")
    process.kill()
    process.wait()
    assert kills >= 3
    finish(start(folder, "--resume"))
    assert contents(folder) == contents(uninterrupted)
    assert not list(folder.glob(".*"))


def test_a_run_that_stops_between_any_two_chunks_resumes_to_the_last_bit(
    uninterrupted: File, tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayes_attn.sampling.run.CHECKPOINT_SECONDS", 0.0)
    posterior, folder = Gaussian(), tmp_path / "stopped"
    starts = Starts((posterior.sample_prior,), 4)

    class Stop(Exception):
        pass

    def stop_now_and_then(done: int, _total: int) -> None:
        if (done // 20) % 7 == 0:
            raise Stop

    for attempt in range(100):
        try:
            sample(
                posterior, temperature_path(1.0), starts, SCHEDULE, 4, stop_now_and_then,
                rungs="auto", folder=folder, resume=attempt > 0,
            )  # fmt: skip
        except Stop:
            continue
        break
    assert attempt > 10
    assert contents(folder) == contents(uninterrupted)


def test_a_run_on_disk_is_the_run_in_memory(uninterrupted: File, tmp_path: File) -> None:
    posterior = Gaussian()
    starts, path = Starts((posterior.sample_prior,), 4), temperature_path(1.0)
    memory = sample(posterior, path, starts, SCHEDULE, 4, rungs="auto")
    disk = sample(posterior, path, starts, SCHEDULE, 4, rungs="auto", folder=tmp_path / "disk")
    assert isinstance(disk.log_density, np.memmap)
    assert not disk.log_density.flags.writeable
    for one, other in zip(jax.tree.leaves(vars(memory)), jax.tree.leaves(vars(disk)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert contents(tmp_path / "disk") == contents(uninterrupted)
    # A finished run that is resumed is read, not run again.
    told = []
    again = sample(
        posterior, path, starts, SCHEDULE, 4, lambda *at: told.append(at), rungs="auto", folder=tmp_path / "disk",
        resume=True,
    )  # fmt: skip
    assert told == []
    np.testing.assert_array_equal(again.log_density, memory.log_density)
    np.testing.assert_array_equal(again.position, memory.position)
    assert again.rounds == memory.rounds


def test_another_runs_folder_is_refused(uninterrupted: File, tmp_path: File) -> None:
    posterior = Gaussian()
    starts, path = Starts((posterior.sample_prior,), 4), temperature_path(1.0)

    def again(seed: int = 4, posterior: Gaussian = posterior, **changes: object) -> Samples:
        settings = {"rungs": "auto", "folder": uninterrupted, "resume": True} | changes
        return sample(posterior, path, starts, SCHEDULE, seed, **settings)

    with pytest.raises(InvalidInput, match="`folder` must be new or empty, unless `resume` is true"):
        again(resume=False)
    with pytest.raises(InvalidInput, match="run of the same settings; `seed` was 4 there, got 5"):
        again(seed=5)
    with pytest.raises(InvalidInput, match="run of the same settings; `posterior` was 'Gaussian .*' there, got"):
        again(posterior=Gaussian(width=0.6))
    with pytest.raises(InvalidInput, match="`folder` must hold a run to resume"):
        again(folder=tmp_path)


def test_memory_is_flat_and_chunks_compile_once(tmp_path: File) -> None:
    """Ten times the draws: the same memory to within 20 MB beyond the first run, though 60 MB of records are written.

    The second half's chunks take no longer than the first half's, up to noise: nothing is compiled or copied anew.
    """
    finish(start(tmp_path / "long", "--memory"))
    report = json.loads((tmp_path / "long.json").read_text())
    assert report["written_megabytes"] > 60
    assert report["grown_megabytes"] < 20
    assert report["chunks_compiled"] == 1
    assert report["later_over_earlier"] < 1.5


@pytest.fixture(scope="module")
def on_devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, File]:
    """The same run on 1, 2 and 4 of four devices, chains side by side or one by one on each."""
    folder = tmp_path_factory.mktemp("devices") / "runs"
    finish(start(folder, "--all-devices", devices=4))
    return {file.name: file for file in folder.iterdir()}


def test_devices_share_the_chains_bitwise_one_by_one(on_devices: dict[str, File]) -> None:
    one = contents(on_devices["one-by-one-1"])
    assert len(one) > 5
    for devices in (2, 4):
        assert contents(on_devices[f"one-by-one-{devices}"]) == one


def test_devices_share_the_chains_statistically_side_by_side(on_devices: dict[str, File]) -> None:
    """The mean of the last rung's first coordinate is the exact one: 4.5 standard errors, independent chains."""
    mean, _ = Gaussian().exact(np.array([1.0]))
    for devices in (1, 2, 4):
        folder = on_devices[f"side-by-side-{devices}"]
        first = np.load(folder / "order_1.npy")[:, :, -1]
        assert first.shape == (4, SCHEDULE.scans)
        error = first.std() / np.sqrt(first.size / 3)
        assert abs(first.mean() - mean[0]) < 4.5 * error


def test_devices_share_the_posteriors(on_devices: dict[str, File]) -> None:
    """Two posteriors, each whole on a device of its own or both on one: the same short run, up to rounding."""
    one, two = (on_devices[f"two-posteriors-{devices}"] for devices in (1, 2))
    for name in contents(one):
        np.testing.assert_allclose(np.load(two / name), np.load(one / name), rtol=1e-6, atol=1e-6)
    refusal = on_devices["refusal.txt"].read_text()
    assert refusal == "sample: `devices` must divide the number of posteriors, 2, got 4."


def test_two_processes_run_as_one(on_devices: dict[str, File], tmp_path: File) -> None:
    """jax.distributed on one machine: two processes with two devices each leave the files of one process with four."""
    folder = tmp_path / "two"
    port = str(29_500 + os.getpid() % 400)
    processes = [start(folder, "--one-by-one", "--process", str(i), port, devices=2) for i in range(2)]
    try:
        for process in processes:
            finish(process)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert contents(folder) == contents(on_devices["one-by-one-4"])


def test_processes_do_not_share_stored_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a compilation cache, collectives on CPUs hang."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    posterior = Gaussian()
    with pytest.raises(InvalidInput, match="`jax_compilation_cache_dir` must be None where several processes share"):
        sample(posterior, temperature_path(1.0), Starts((posterior.sample_prior,), 4), SCHEDULE, 4, rungs="auto")


def test_ladders_are_checked_against_the_data(tmp_path: File) -> None:
    """A refusal leaves no folder behind."""
    posterior = Gaussian()
    with pytest.raises(InvalidInput, match="`initial` must have leading axes"):
        sample(
            posterior, load_ladder([0.0, 1.0]), {"x": jax.numpy.zeros((2, 3, 3))}, SCHEDULE, 0,
            folder=tmp_path / "never",
        )  # fmt: skip
    assert not (tmp_path / "never").exists()
