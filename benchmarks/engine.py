"""Question: does the engine cross the first-order transition, what does a scan cost, and what do its peers do?

One run, one machine, one density (population posterior, softmax, V = L), in four parts:

* `crossing`: at the transition of each size, round trips between the phases at the target and the weight of the copy
  phase from cold and from hot starts; along the line of coexistence, round four legs, and along the data amount alone.
* `steps`: phase round trips per second against the explorer's steps per scan.
* `one_phase`: at 0.8 of the transition's load, the least effective sample size per second over all logits and m, q,
  beside numpyro's and blackjax's NUTS; `overhead`: the share of a scan's time that is not exploration.
* `peers`: the target of `crossing` at L = V = 24, with what other libraries offer. Two of them are optional:

    uv run --with tfp-nightly --with flowMC python benchmarks/engine.py engine.json

Writes JSON, and prints a line per result.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
sys.path.append(str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np
import peers
import tyro

from bayes_attn import Controls, CopyTask, Population, Samples, Schedule, Starts, sample, theory
from bayes_attn import Path as ControlPath
from bayes_attn.diagnostics import estimate
from bayes_attn.free_energy import phase_weight, stepping_stone
from bayes_attn.sampling import coexistence_path, four_legs, load_path
from bayes_attn.sampling.explorers import EXPLORERS, explore

CHAINS = 4
RUNGS = {24: 8, 32: 12, 48: 20}
"""About two per unit of the communication barrier along the line of coexistence, and a few more."""


def timed(*arguments: Any, **options: Any) -> tuple[Samples, float, float]:
    """A run, its seconds in all (compilation and warm-up included), and those of the recorded scans."""
    schedule = arguments[3]
    moments = {0: time.perf_counter()}
    samples = sample(*arguments, lambda done, _: moments.update({done: time.perf_counter()}), **options)
    finished = moments[schedule.total]
    return samples, finished - moments[0], finished - moments[schedule.warmup]


def borders(transition: theory.Transition) -> tuple[float, float]:
    low, cut, high = transition.copy_mass_disordered, transition.copy_mass_barrier, transition.copy_mass_copy
    return (low + cut) / 2, (cut + high) / 2


@cache
def model(length: int) -> tuple[Population, theory.Transition, np.ndarray, np.ndarray]:
    """The posterior, its transition, and loads and fields of its line of coexistence."""
    posterior = Population(CopyTask(length, length))
    return posterior, theory.transition(posterior), *theory.way_to_end(posterior)


def theory_weight(posterior: Population, transition: theory.Transition) -> float:
    (density,) = theory.densities(posterior, [transition.critical_load])
    copied = np.where(density.copy_mass > transition.copy_mass_barrier, density.probability, 0.0)
    return float(np.trapezoid(copied, density.copy_mass))


def crossing(length: int, scans: dict[str, int], max_steps: int = 8) -> list[dict[str, Any]]:
    """One row per path, at the transition of one size."""
    posterior, transition, loads, fields = model(length)
    critical, cut = transition.critical_load, transition.copy_mass_barrier
    ways: dict[str, tuple[ControlPath, int | str, list[float]]] = {
        "coexistence": (coexistence_path(loads, fields), RUNGS.get(length, 8), [0.0]),
        "four legs": (four_legs(critical, 1.25 * fields[-1], cut), "auto", [0.0, 4.0]),
        "load": (load_path([0.0, critical, 1.4 * critical]), 2 * RUNGS.get(length, 8), [1.0]),
    }
    rows = []
    for name, (path, rungs, targets) in ways.items():
        if not scans.get(name):
            continue
        starts = Starts((posterior.sample_prior, posterior.sample_copy), CHAINS)
        schedule = Schedule(max(400, scans[name] // 8), scans[name] // 40, 40, max_steps)
        samples, seconds, recorded = timed(posterior, path, starts, schedule, 1, rungs=rungs)
        at = [int(np.flatnonzero(samples.position == target)[0]) for target in targets]
        row = {
            "length": length, "barrier": transition.barrier, "path": name, "rungs": samples.rungs,
            "chains": CHAINS, "scans": samples.schedule.scans, "seconds": seconds, "seconds_recorded": recorded,
            "phase_round_trips": samples.phase_round_trips(*borders(transition), at),
            "round_trips": samples.round_trips(),
            "communication_barrier": samples.communication_barrier,
            "round_trip_rate": samples.round_trip_rate,
            "predicted_round_trip_rate": samples.predicted_round_trip_rate,
            "round_trip_rate_ratio": samples.round_trip_rate_ratio,
            "theory_copy_weight": theory_weight(posterior, transition),
        }  # fmt: skip
        if name == "four legs":
            weight, error = phase_weight(stepping_stone(samples))
            row |= {"copy_weight": weight, "copy_weight_error": error}
        else:
            copied = (samples.order_parameters.copy_mass[:, :, at[0]] > cut).astype(float)
            for kind, values in (("", copied), ("cold_", copied[0::2]), ("hot_", copied[1::2])):
                found = estimate(values)
                row |= {f"{kind}copy_weight": found.mean, f"{kind}copy_weight_error": found.error}
        row["phase_round_trips_per_hour"] = row["phase_round_trips"] / recorded * 3600
        rows.append(row)
        weight = f"{row['copy_weight']:.3f} ± {row['copy_weight_error']:.3f}, theory {row['theory_copy_weight']:.3f}"
        sides = "".join(
            f", {kind} {row[f'{kind}_copy_weight']:.3f} ± {row[f'{kind}_copy_weight_error']:.3f}"
            for kind in ("cold", "hot")
            if f"{kind}_copy_weight" in row
        )
        print(
            f"crossing L = V = {length} ({transition.barrier:.1f} kT), {name}: {row['phase_round_trips']} phase round "
            f"trips in {seconds:.0f} s; copy weight {weight}{sides}; {row['rungs']} rungs, barrier "
            f"{row['communication_barrier']:.2f}, seen/predicted {row['round_trip_rate_ratio']:.2f}",
            flush=True,
        )
    return rows


def steps(length: int, choices: tuple[int, ...], scans: int) -> list[dict[str, Any]]:
    """Phase round trips per second along the line of coexistence, for several numbers of steps per scan."""
    posterior, transition, loads, fields = model(length)
    path = coexistence_path(loads, fields)
    rows = []
    for max_steps in choices:
        starts = Starts((posterior.sample_prior, posterior.sample_copy), CHAINS)
        # Long trajectories cost more, and are given fewer scans.
        draws = max(10, int(scans / 40 * 12 / (max_steps + 4)))
        schedule = Schedule(600, draws, 40, max_steps)
        samples, _, seconds = timed(posterior, path, starts, schedule, 2, rungs=RUNGS.get(length, 8))
        trips = samples.phase_round_trips(*borders(transition), [0])
        rows.append(
            {
                "length": length, "max_steps": max_steps, "scans": samples.schedule.scans, "seconds": seconds,
                "phase_round_trips": trips, "phase_round_trips_per_second": trips / seconds,
                "error": float(np.sqrt(max(trips, 1))) / seconds,
            }
        )  # fmt: skip
        print(
            f"steps 1 ... {max_steps}: {trips / seconds:.1f} ± {rows[-1]['error']:.1f} phase round trips per second",
            flush=True,
        )
    return rows


def least_ess(posterior: Population, logits: np.ndarray) -> float:
    """Over every logit, m and q."""
    import arviz as az

    shaped = logits.reshape(*logits.shape[:2], posterior.task.length, posterior.task.length)
    order = jax.vmap(lambda chain: jax.lax.map(posterior.order_parameters, chain, batch_size=256))(jnp.asarray(shaped))
    scalars = np.concatenate([logits, *(np.asarray(one)[..., None] for one in order[:2])], axis=-1)
    return float(min(az.ess(scalars[..., i]) for i in range(scalars.shape[-1])))


def one_phase(length: int, chains: int, draws: int) -> list[dict[str, Any]]:
    """The engine's explorers and NUTS elsewhere, in the disordered phase; repeated, interleaved."""
    posterior = Population(CopyTask(length, length))
    load = 0.8 * theory.transition(posterior).steepest_load
    start = jax.vmap(posterior.sample_prior)(jax.random.split(jax.random.key(5), chains))

    def engine(sampler: str, precision: str = "double") -> Callable[[], peers.Peer]:
        def run() -> peers.Peer:
            target = Controls(jnp.ones(1), jnp.full(1, load), jnp.zeros(1))
            samples, _, seconds = timed(
                posterior, target, start[:, None], Schedule(500, draws, 1), 3, sampler=sampler, precision=precision
            )
            logits = samples.params[:, :, 0]
            return peers.Peer(
                logits.reshape(*logits.shape[:2], -1), samples.order_parameters[0][:, :, 0], seconds, None
            )

        return run

    runs: dict[str, Callable[[], peers.Peer]] = {
        "engine hmc (default)": engine("hmc"),
        "engine hmc, mixed precision": engine("hmc", "mixed"),
        "engine nuts": engine("nuts"),
        "numpyro nuts": lambda: peers.numpyro_nuts(posterior, load, start, 300, draws // 2),
        "blackjax nuts": lambda: peers.blackjax_nuts(posterior, load, start, 300, draws // 2),
    }
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(2):
        for name, run in runs.items():
            out = run()
            assert out.logits is not None
            found[name].append(least_ess(posterior, out.logits.astype(float)) / out.seconds)
    rows = [
        {
            "length": length,
            "chains": chains,
            "name": name,
            "min_ess_per_second": float(np.mean(rates)),
            "repeats": rates,
        }
        for name, rates in found.items()
    ]
    for row in rows:
        repeats = ", ".join(f"{rate:.0f}" for rate in row["repeats"])
        print(
            f"one phase, {row['name']}: {row['min_ess_per_second']:.0f} least ESS per second ({repeats})",
            flush=True,
        )
    return rows


def overhead(length: int, rungs: int, scans: int) -> dict[str, float]:
    """Time of a scan, and of its exploration alone: the same kernel, rungs, chains and steps in a bare loop."""
    posterior, _, loads, fields = model(length)
    path = coexistence_path(loads, fields).rungs(np.linspace(0, 1, rungs))
    starts = jax.vmap(jax.vmap(posterior.sample_prior))(jax.random.split(jax.random.key(0), (CHAINS, rungs)))
    schedule = Schedule(300, scans // 40, 40)
    samples, _, seconds = timed(posterior, path, starts, schedule, 0)
    scale, sizes = jnp.asarray(samples.scale), jnp.asarray(samples.step_size)

    def one(
        key: jax.Array, logits: jax.Array, controls: Controls, size: jax.Array, scale: jax.Array, steps: Any
    ) -> Any:
        return explore(EXPLORERS["hmc"].kernel, posterior, key, logits, controls, size, scale, steps).params

    over = jax.vmap(jax.vmap(one, (0, 0, None, None, None, None)), (0, 0, 0, 0, 0, None))

    @jax.jit
    def bare(logits: jax.Array, key: jax.Array, path: Controls, sizes: jax.Array, scale: jax.Array) -> jax.Array:
        # Controls and tuning are arguments, as they are for the engine: known beforehand, they would be folded in.
        def scan(logits: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            length_key, key = jax.random.split(key)
            keys = jax.random.split(key, (rungs, CHAINS))
            return over(keys, logits, path, sizes, scale, jax.random.randint(length_key, (), 1, 9)), None

        return jax.lax.scan(scan, logits, jax.random.split(key, scans))[0]

    logits = jnp.swapaxes(starts, 0, 1)
    jax.block_until_ready(bare(logits, jax.random.key(0), path, sizes, scale))
    whole, times = [seconds], []
    for repeat in range(4):  # interleaved; the least of each, since a machine's other work only adds
        began = time.perf_counter()
        jax.block_until_ready(bare(logits, jax.random.key(repeat), path, sizes, scale))
        times.append(time.perf_counter() - began)
        whole.append(timed(posterior, path, starts, schedule, repeat)[2])
    seconds, alone = min(whole), min(times)
    share = 1 - alone / seconds
    print(
        f"overhead: {1e3 * seconds / scans:.3f} ms per scan, of which exploration {1e3 * alone / scans:.3f} ms: "
        f"{share:.1%} is not",
        flush=True,
    )
    return {
        "milliseconds_per_scan": 1e3 * seconds / scans,
        "milliseconds_exploring": 1e3 * alone / scans,
        "share": share,
    }


def against_peers(length: int, draws: int) -> list[dict[str, Any]]:
    """What each peer makes of the target at the transition, half of its chains started in each phase."""
    posterior = Population(CopyTask(length, length))
    transition = theory.transition(posterior)
    load, cut, edges = transition.critical_load, transition.copy_mass_barrier, borders(transition)
    keys = jax.random.split(jax.random.key(6), CHAINS)
    cold, hot = jax.vmap(posterior.sample_prior)(keys), jax.vmap(posterior.sample_copy)(keys)
    start = jnp.where((jnp.arange(CHAINS) % 2 == 1)[:, None, None], hot, cold)

    def smc() -> peers.Peer:
        target = Controls(jnp.ones(1), jnp.full(1, load), jnp.zeros(1))
        began = time.perf_counter()
        samples = sample(posterior, target, start[:, None], Schedule(1, draws, 1), 0, sampler="tempered-smc")
        return peers.Peer(None, samples.order_parameters[0][:, :, 0], time.perf_counter() - began, None)

    runs: dict[str, Callable[[], peers.Peer]] = {
        "numpyro nuts": lambda: peers.numpyro_nuts(posterior, load, start, 300, draws),
        "blackjax nuts": lambda: peers.blackjax_nuts(posterior, load, start, 300, draws),
        "blackjax tempered smc": smc,
        "tfp replica exchange": lambda: peers.tfp_replica_exchange(posterior, load, start, 500, 4 * draws, 16, edges),
        "flowMC parallel tempering": lambda: peers.flow_mc(posterior, load, start, 20, draws // 5, 8),
    }
    rows = []
    for name, run in runs.items():
        row: dict[str, Any] = {"length": length, "name": name}
        try:
            out = run()
        except ImportError as error:
            row["did_not_run"] = f"{error} (optional; uv run --with installs it)"
            print(f"peer {name}: did not run: {row['did_not_run']}", flush=True)
            rows.append(row)
            continue
        copied = (out.copy_mass > cut).astype(float)
        in_phase = np.where(out.copy_mass < edges[0], -1, np.where(out.copy_mass > edges[1], 1, 0))
        changes = 0
        for chain in in_phase:
            visits = chain[chain != 0]
            changes += int(np.count_nonzero(np.diff(visits)))
        is_smc = "smc" in name
        row |= {
            "draws": copied.size, "seconds": out.seconds,
            "copy_share_by_chain": copied.mean(axis=1).tolist(),
            # Particles of one population come in no order, so that changes along them mean nothing.
            "phase_changes_in_chains": None if is_smc else changes,
            "phase_round_trips": out.phase_round_trips,
        }  # fmt: skip
        rows.append(row)
        shares = ", ".join(f"{share:.2f}" for share in row["copy_share_by_chain"])
        print(
            f"peer {name}: copy share by chain {shares} (theory {theory_weight(posterior, transition):.2f}); "
            f"changes within chains {row['phase_changes_in_chains']}; round trips {out.phase_round_trips}; "
            f"{out.seconds:.0f} s",
            flush=True,
        )
    return rows


def main(file: tyro.conf.Positional[Path], small: bool = False) -> None:
    """Write one JSON file. `small`: minutes become seconds, and the figures mean nothing."""
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    if small:
        rows += crossing(16, {"coexistence": 400}, max_steps=2)
        result: dict[str, Any] = {"crossing": rows, "steps": steps(16, (2,), 400)}
        result |= {"one_phase": [], "overhead": overhead(16, 4, 100), "peers": []}
    else:
        rows += crossing(24, {"coexistence": 40_000, "four legs": 12_000, "load": 8_000})
        rows += crossing(32, {"coexistence": 40_000, "load": 4_000})
        rows += crossing(48, {"coexistence": 24_000})
        result = {"crossing": rows, "steps": steps(24, (1, 2, 4, 8, 16, 32), 10_000)}
        result |= {"one_phase": one_phase(24, 4, 2_000), "overhead": overhead(24, 8, 2_000)}
        result |= {"peers": against_peers(24, 2_000)}
    packages = ["bayes-attn", "jax", "jaxlib", "blackjax", "numpyro"]
    result["versions"] = {name: version(name) for name in packages}
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}"
    result["seconds"] = time.perf_counter() - began
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
