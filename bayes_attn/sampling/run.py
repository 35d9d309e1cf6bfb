"""Running replica exchange: chunks compiled once, on one device or many, in memory or to disk, and resumable."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path as File
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import DualAveragingAdaptationState
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_attn.errors import require, require_integer
from bayes_attn.posterior import Posterior
from bayes_attn.sampling import adaptation, recorder, tempering
from bayes_attn.sampling.adaptation import WarmUp, even
from bayes_attn.sampling.controls import Controls, Path, check_controls, conditioned, is_prior
from bayes_attn.sampling.explorers import EXPLORERS
from bayes_attn.sampling.oracles import ORACLES
from bayes_attn.sampling.recorder import Recorder
from bayes_attn.sampling.samples import RECORDED, Samples, Schedule, swap_probability, swaps_tried
from bayes_attn.sampling.side_by_side import as_sequence, for_each, stacked
from bayes_attn.sampling.starts import Starts, draw_starts, refuse_bad_starts
from bayes_attn.sampling.tempering import Method, Replicas, Rungs, Scan

SCANS_PER_CHUNK = 25
"""Scans between two reports of progress, or `thin` if that is more."""
LARGEST_STRIDE = 10
"""Scans between two draws that the metric is learned from, at most."""
CHECKPOINT_SECONDS = 2.0
"""Least time between two checkpoints."""
LEAST_AUTOMATIC_RUNGS = 8
"""To begin with, for `rungs="auto"`."""
CHAINS = "chains"
"""The devices' axis."""


class _Job(NamedTuple):
    """All arguments of a chunk but the state."""

    posterior: Posterior
    """Several of them stacked."""
    rungs: Rungs
    key: PRNGKeyArray
    first: Int[Array, ""]
    stop: Int[Array, ""]
    warming: Bool[Array, ""]
    method: Method
    target_acceptance: float
    strides: int
    stride: int
    """Scans between two outputs of the parameters."""
    one_by_one: bool
    mesh: Mesh
    chains: int | None
    """Of each posterior, where there are several of them."""


class _State(NamedTuple):
    """What goes from scan to scan: leaves have the leading axis chain."""

    replicas: Replicas
    stepping: DualAveragingAdaptationState
    """Leaves (chain, rung)."""


@eqx.filter_jit(donate="all-except-first")
def _chunk(job: _Job, state: _State) -> tuple[_State, tuple[Scan, PyTree]]:
    """`strides` times `stride` scans from scan number `first` on, on all devices; nothing happens from `stop` on."""
    arrays, static = eqx.partition(job, eqx.is_array)

    def on_one_device(arrays: _Job, state: _State) -> tuple[_State, tuple[Scan, PyTree]]:
        if not job.one_by_one:
            return together(arrays, state)
        # Each chain in a batch of one, whatever the number of chains here: the same arithmetic on any device.
        alone = jax.tree.map(lambda leaf: leaf[:, None], state)
        return jax.tree.map(lambda leaf: leaf[:, 0], jax.lax.map(lambda one: together(arrays, one), alone))

    def together(arrays: _Job, state: _State) -> tuple[_State, tuple[Scan, PyTree]]:
        job = eqx.combine(arrays, static)
        if job.chains is None:
            return strides(job, state)
        return for_each(lambda one, part: strides(job._replace(posterior=one), part), job.posterior, job.chains, state)

    def strides(job: _Job, state: _State) -> tuple[_State, tuple[Scan, PyTree]]:
        posteriors = conditioned(job.posterior, job.rungs.controls)

        def one_scan(state: _State, number: Array) -> tuple[_State, Scan]:
            stepping = state.stepping
            sizes = jnp.exp(jnp.where(job.warming, stepping.log_step_size, stepping.log_step_size_avg))
            replicas, record = tempering.scan(posteriors, job.rungs, job.method, job.key, number, state.replicas, sizes)
            adapted = adaptation.update(stepping, record.acceptance, job.target_acceptance)
            stepping = jax.tree.map(lambda new, old: jnp.where(job.warming, new, old), adapted, stepping)
            return _State(replicas, stepping), record

        def stride(state: _State, start: Array) -> tuple[_State, tuple[Scan, PyTree]]:
            state, records = jax.lax.scan(one_scan, state, start + jnp.arange(job.stride))
            params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tempering.by_rung(state.replicas))
            return state, (records, params)

        def nothing(state: _State, start: Array) -> tuple[_State, tuple[Scan, PyTree]]:
            shapes = jax.eval_shape(stride, state, start)[1]
            return state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def one_stride(state: _State, start: Array) -> tuple[_State, tuple[Scan, PyTree]]:
            # One condition per stride: at every scan it would cost a tenth of the time.
            return jax.lax.cond(start < job.stop, stride, nothing, state, start)

        state, (records, params) = jax.lax.scan(one_stride, state, job.first + job.stride * jnp.arange(job.strides))
        records = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), records)
        # Axes (chain, time, ...), as they are kept.
        return state, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (records, params))

    whole, by_chain = PartitionSpec(), PartitionSpec(CHAINS)
    job_specs = _Job._make([whole] * len(_Job._fields))._replace(posterior=whole if job.chains is None else by_chain)
    sharded = jax.shard_map(
        on_one_device, mesh=job.mesh, in_specs=(job_specs, by_chain), out_specs=by_chain, check_vma=False
    )
    return sharded(arrays, state)


def sample(
    posterior: Posterior | Sequence[Posterior],
    path: Controls | Path,
    initial: PyTree | Starts,
    schedule: Schedule,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
    *,
    rungs: int | str | None = None,
    sampler: str = "hmc",
    precision: str = "double",
    folder: File | None = None,
    resume: bool = False,
    devices: int | None = None,
    one_by_one: bool = False,
) -> Samples:
    """Sample a posterior, or several side by side, at every rung of a path with replica exchange.

    Parameters
    ----------
    posterior: anything that meets the `Posterior` contract; or a list or tuple of posteriors that differ in the values
        of their arrays only, as many data sets do. Each gets as many chains, chain c being posterior
        c // (chains of each)'s; ladder, metric and step sizes are those of all chains together. `Samples.of` takes the
        result apart.
    path: controls with arrays of shape (rung,), used as they are; or a `Path`, on which warm-up places the rungs.
    initial: start of every replica, leaves with leading axes (chain, rung), the chains of all posteriors; or `Starts`,
        by which they are drawn, so many chains for each posterior.
    schedule: lengths.
    seed: fixes every random number; the result does not depend on chunks, and a resumed run is the uninterrupted one to
        the last bit.
    progress: called with (scans done, scans in all) after every chunk.
    rungs: with a `Path`: how many, or "auto": as many as keep the communication barrier between neighbours below one
        half, added between rounds.
    sampler: "hmc" (default), "nuts", "mala" or "langevin", within replica exchange; or one of the oracles
        "numpyro-nuts", "blackjax-nuts" and "tempered-smc", which run every rung alone, and a single posterior.
    precision: "double", or "mixed": the explorer works in single precision, and its outcome is accepted with the ratio
        in double precision, as are swaps.
    folder: where records and checkpoints go, new or empty. Without it they stay in memory.
    resume: go on with the run in `folder`.
    devices: how many of JAX's devices share the chains; where there are several posteriors, each goes to one device as
        a whole. Default: as many as divide the number of chains, or of posteriors.
    one_by_one: chains one after the other on each device, so that a run does not depend to the last bit on `devices`.
        For a single posterior.

    Raises
    ------
    InvalidInput: an argument breaks its rule; posteriors differ in structure or shapes; `initial` does not match the
        path, or no start with a finite log-density was found; the path asks for more data than a posterior has (its
        `check_load`, where there is one, says so); several processes share a run on CPUs while JAX's persistent
        compilation cache is on.
    """
    require_integer("sample", "seed", seed, least=0)
    known = (*EXPLORERS, *ORACLES)
    require(sampler in known, "sample", "sampler", f"must be one of {', '.join(known)}", sampler)
    require(precision in ("double", "mixed"), "sample", "precision", "must be double or mixed", precision)
    # blackjax's NUTS mixes types where JAX's double precision is on and its position is single.
    rule = "must be double for the sampler nuts and for those that run every rung alone"
    alone = sampler == "nuts" or sampler in ORACLES
    require(precision == "double" or not alone, "sample", "precision", rule, precision)
    require(folder is not None or not resume, "sample", "resume", "goes with `folder`", resume)
    if jax.process_count() > 1 and jax.default_backend() == "cpu" and jax.config.jax_enable_compilation_cache:
        # Process 0 alone finds its programs there again, and a stored collective and a fresh one never meet.
        rule = "must be None where several processes share the chains on CPUs, or they wait for each other for ever"
        cache = jax.config.jax_compilation_cache_dir
        require(cache is None, "sample", "jax_compilation_cache_dir", rule, cache)
    posteriors = as_sequence(posterior)
    several = len(posteriors) > 1
    rule = f"must be a single one for the sampler {sampler}"
    require(not several or sampler not in ORACLES, "sample", "posterior", rule, len(posteriors))
    rule = "must be False where there are several posteriors"
    require(not (several and one_by_one), "sample", "one_by_one", rule, one_by_one)
    position, ladder = _first_ladder(posteriors, path, rungs)
    key = jax.random.key(seed)
    if isinstance(initial, Starts):
        drawn = draw_starts(posteriors, ladder, initial, jax.random.fold_in(key, 0x57A7))
    else:
        drawn = jax.tree.map(jnp.asarray, initial)
        refuse_bad_starts(posteriors, ladder, drawn)
    chains = jax.tree.leaves(drawn)[0].shape[0]
    # One stream for a run; its own fold keeps it apart from the streams that made data and starts from this seed.
    stream = jax.random.fold_in(key, 0x5CA9)
    if sampler in ORACLES:
        rule = f"is not for the sampler {sampler}, which keeps all in memory"
        require(folder is None, "sample", "folder", rule, folder)
        return ORACLES[sampler](posteriors[0], ladder, drawn, schedule, stream, progress)
    if folder is not None:
        starts = [draw.__name__ for draw in initial.draws] if isinstance(initial, Starts) else recorder.digest(initial)
        description = {
            "seed": seed,
            "schedule": asdict(schedule),
            "sampler": sampler,
            "precision": precision,
            "rungs": rungs,
            "chains": chains,
            "path": recorder.digest(path.legs if isinstance(path, Path) else path),
            "posterior": _description(posteriors),
            "initial": starts,
            "records": RECORDED,
            "jax": jax.__version__,
        }
        recorder.open_folder(folder, description, resume)
        _wait_for_others("the folder is there")
    stride = _stride(schedule)
    schedule = replace(schedule, warmup=stride * math.ceil(schedule.warmup / stride))
    explorer = EXPLORERS[sampler]
    method = Method(explorer.kernel, schedule.max_steps, precision == "mixed")
    dimension = sum(leaf[0, 0].size for leaf in jax.tree.leaves(drawn))
    warmup = WarmUp(schedule.warmup, stride, position, isinstance(path, Path), rungs == "auto", dimension)
    mesh = _mesh(len(posteriors), "posteriors", devices) if several else _mesh(chains, "chains", devices)
    with closing(Recorder(folder)) as records:
        run = _Run(posteriors, path, schedule, stream, sampler, method, mesh, one_by_one, warmup, records, drawn)
        if folder is not None and resume:
            run.restore(folder)
        run.finish(progress)
    _wait_for_others("the records are written")
    return run.samples()


def _description(posteriors: Sequence[Posterior]) -> str:
    name = type(posteriors[0]).__name__
    if len(posteriors) == 1:
        return f"{name} {recorder.digest(posteriors[0])}"
    return f"{len(posteriors)} times {name} {recorder.digest(posteriors)}"


def _first_ladder(
    posteriors: Sequence[Posterior], path: Controls | Path, rungs: int | str | None
) -> tuple[Float[np.ndarray, " rung"], Controls]:
    """Where the rungs are to begin with: positions and controls, checked."""
    if isinstance(path, Path):
        legs = len(path.legs)
        count = max(legs + 1, LEAST_AUTOMATIC_RUNGS) if rungs == "auto" else rungs
        rule = f'must be an integer of at least {legs + 1} (legs\' ends are rungs) or "auto" where `path` is a Path'
        require(isinstance(count, int) and not isinstance(count, bool) and count > legs, "sample", "rungs", rule, rungs)
        position = even(legs, int(count))  # pyright: ignore[reportArgumentType]
        ladder, loads = path.rungs(position), np.concatenate([leg.load for leg in path.legs])
    else:
        require(rungs is None, "sample", "rungs", "goes with a Path; controls are used as they are", rungs)
        check_controls("sample", path)
        ladder, loads = jax.tree.map(jnp.asarray, path), np.asarray(path.load)
        position = np.arange(float(len(loads)))
    for posterior in posteriors:
        if (check_load := getattr(posterior, "check_load", None)) is not None:
            for load in np.unique(loads):
                check_load(float(load))
    return position, ladder


def _mesh(shares: int, name: str, devices: int | None) -> Mesh:
    """The devices that share so many chains or posteriors: with several processes all, else as many as divide them."""
    available = jax.devices()
    if devices is None:
        divisors = [n for n in range(1, len(available) + 1) if shares % n == 0]
        devices = len(available) if jax.process_count() > 1 else max(divisors)
    require_integer("sample", "devices", devices, least=1)
    require(devices <= len(available), "sample", "devices", f"must be at most the {len(available)} there are", devices)
    require(shares % devices == 0, "sample", "devices", f"must divide the number of {name}, {shares}", devices)
    return Mesh(np.array(available[:devices]), (CHAINS,))


def _stride(schedule: Schedule) -> int:
    """Warm-up looks at the parameters more often than they are kept: the largest divisor of `thin` that is allowed."""
    return max(n for n in range(1, LARGEST_STRIDE + 1) if schedule.thin % n == 0)


class _Run:
    """The state of a run between chunks, on the host."""

    def __init__(
        self,
        posteriors: Sequence[Posterior],
        path: Controls | Path,
        schedule: Schedule,
        key: PRNGKeyArray,
        sampler: str,
        method: Method,
        mesh: Mesh,
        one_by_one: bool,
        warmup: WarmUp,
        records: Recorder,
        drawn: PyTree,
    ) -> None:
        self.posteriors, self.path, self.schedule, self.key = posteriors, path, schedule, key
        self.sampler, self.method, self.mesh, self.one_by_one = sampler, method, mesh, one_by_one
        self.warmup, self.records = warmup, records
        self.scans_per_chunk = schedule.thin * max(1, SCANS_PER_CHUNK // schedule.thin)
        self.stride = _stride(schedule)
        self.done = 0
        chains, rungs = jax.tree.leaves(drawn)[0].shape[:2]
        self.posterior, self.chains = posteriors[0], None
        if len(posteriors) > 1:
            arrays, static = eqx.partition(stacked(posteriors), eqx.is_array)
            self.posterior, self.chains = eqx.combine(self._placed(arrays), static), chains // len(posteriors)
        numbers = np.broadcast_to(np.arange(rungs), (chains, rungs))
        self._begin_round(Replicas(drawn, numbers, np.arange(chains)))

    def _placed(self, state: PyTree) -> PyTree:
        """The same on every process, to arrays whose first axis (chain or posterior) is shared out over the devices."""
        sharding = NamedSharding(self.mesh, PartitionSpec(CHAINS))

        def place(leaf: np.ndarray | Array) -> Array:
            leaf = np.array(leaf)
            return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])

        return jax.tree.map(place, state)

    def _on_host(self, state: PyTree) -> PyTree:
        """Numpy arrays of all chains, also where other processes hold some of them.

        One gather for all leaves, waited for on every device: collectives that overlap can block each other for ever,
        and `multihost_utils.process_allgather` returns when the first local device has its copy.
        """
        if jax.process_count() > 1:
            everywhere = NamedSharding(self.mesh, PartitionSpec())
            gather = jax.jit(_as_it_is, out_shardings=everywhere)
            state = jax.block_until_ready(gather(jax.block_until_ready(state)))
            return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0)), state)
        return jax.tree.map(np.asarray, state)

    def _begin_round(self, replicas: Replicas) -> None:
        """Rungs, metric and step sizes as the warm-up has them now."""
        sizes = np.broadcast_to(self.warmup.step_size, replicas.replica_at.shape)
        stepping = adaptation.start(jnp.asarray(sizes), EXPLORERS[self.sampler].target_acceptance)
        # blackjax begins its average at 1; frozen step sizes are those the warm-up ended with.
        stepping = stepping._replace(log_step_size_avg=jnp.log(jnp.asarray(sizes)))
        self.state = self._placed(_State(replicas, stepping))
        self._place_ladder()

    def _place_ladder(self) -> None:
        ladder = self.path.rungs(self.warmup.position) if isinstance(self.path, Path) else self.path
        self.controls = jax.tree.map(np.asarray, ladder)
        exact = np.flatnonzero(is_prior(self.controls))
        self.rungs = jax.tree.map(jnp.asarray, Rungs(self.controls, self.warmup.scale, exact))

    def finish(self, progress: Callable[[int, int], None] | None) -> None:
        """Run until the schedule is done."""
        schedule, saved = self.schedule, time.monotonic()
        starts = [0, *self.warmup.ends]
        while self.done < schedule.total:
            number = int(np.searchsorted(self.warmup.ends, self.done, side="right"))
            warming = number < len(self.warmup.ends)
            stop = self.warmup.ends[number] if warming else schedule.total
            size = min(self.scans_per_chunk, stop - self.done)
            self._one_chunk(size, warming)
            self.done += size
            if warming and self.done == stop:
                self._end_round(stop - starts[number])
            finished = self.done == schedule.total
            if self.records.folder is not None and (finished or _elapsed(saved) > CHECKPOINT_SECONDS):
                self._save()
                saved = time.monotonic()
            if progress is not None:
                progress(self.done, schedule.total)

    def _one_chunk(self, size: int, warming: bool) -> None:
        schedule = self.schedule
        job = _Job(
            self.posterior, self.rungs, self.key,
            jnp.asarray(self.done), jnp.asarray(self.done + size), jnp.asarray(warming),
            self.method, EXPLORERS[self.sampler].target_acceptance,
            self.scans_per_chunk // self.stride, self.stride, self.one_by_one, self.mesh, self.chains,
        )  # fmt: skip
        self.state, output = _chunk(job, self.state)
        record, params = self._on_host(output)
        record = jax.tree.map(lambda leaf: leaf[:, :size], record)
        if warming:
            rejection = 1 - swap_probability(record.gain)
            tried = swaps_tried(rejection.shape[-1], self.done + np.arange(size))
            leaves = [leaf.reshape(*leaf.shape[:3], -1) for leaf in jax.tree.leaves(params)]
            order = np.asarray(record.order_parameters[0], dtype=float)
            draws = np.concatenate(leaves, axis=-1)
            self.warmup.observe(order, np.where(tried, rejection, np.nan), draws)
            return
        start, every = self.done - schedule.warmup, schedule.thin // self.stride
        params = jax.tree.map(lambda leaf: leaf[:, every - 1 :: every][:, : size // schedule.thin], params)
        for name, values in _named(record, params).items():
            is_draw = name.startswith("params")
            if not self.records.knows(name):
                length = schedule.draws if is_draw else schedule.scans
                self.records.allocate(name, (len(values), length, *values.shape[2:]), values.dtype)
            self.records.write(name, start // schedule.thin if is_draw else start, values)

    def _end_round(self, scans: int) -> None:
        stepping = self.state.stepping
        sizes = np.exp(self._on_host(stepping.log_step_size_avg))
        # An exact draw has no step size: it keeps the first one.
        exact = np.asarray(self.rungs.exact)
        sizes[:, exact] = self.warmup.step_size[exact]
        nearest = self.warmup.end_round(scans, sizes)
        replicas = self._on_host(self.state.replicas)
        if nearest is not None:
            params = self._on_host(tempering.by_rung(self.state.replicas))
            params = jax.tree.map(lambda leaf: leaf[:, nearest], params)
            numbers = np.broadcast_to(np.arange(len(nearest)), (len(replicas.chain), len(nearest)))
            replicas = Replicas(params, numbers, replicas.chain)
        self._begin_round(replicas)

    def _save(self) -> None:
        self.records.flush()
        leaves = self._on_host(jax.tree.leaves(self.state))
        state = self.warmup.state() | {f"state_{i}": leaf for i, leaf in enumerate(leaves)}
        if jax.process_index() == 0 and self.records.folder is not None:
            recorder.save_checkpoint(self.records.folder, state | {"done": np.asarray(self.done)})

    def restore(self, folder: File) -> None:
        """Go on from the folder's last checkpoint; from the beginning, if the run died before it wrote one."""
        state = recorder.load_checkpoint(folder)
        if state is None:
            return
        self.done = int(state["done"])
        self.warmup.restore(state)
        structure = jax.tree.structure(self.state)
        leaves = [state[f"state_{i}"] for i in range(structure.num_leaves)]
        self.state = self._placed(jax.tree.unflatten(structure, leaves))
        self._place_ladder()

    def samples(self) -> Samples:
        """The finished run."""
        order = jax.eval_shape(self.posteriors[0].order_parameters, self._params())
        names = [f"order_{i}" for i in range(len(order))]
        structure = jax.tree.structure(self.state.replicas.params)
        return Samples(
            path=self.controls,
            position=self.warmup.position,
            order_parameters=type(order)(*(self.records.finished(name) for name in names)),
            **{name: self.records.finished(name) for name in RECORDED},
            params=jax.tree.unflatten(
                structure, [self.records.finished(f"params_{i}") for i in range(structure.num_leaves)]
            ),
            step_size=self.warmup.step_size,
            scale=self.warmup.scale,
            rounds=tuple(self.warmup.rounds),
            schedule=self.schedule,
            sampler=self.sampler,
            posteriors=len(self.posteriors),
        )

    def _params(self) -> PyTree:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.state.replicas.params)


def _named(record: Scan, params: PyTree) -> dict[str, np.ndarray]:
    """A chunk's records under the names of their files."""
    named = {name: getattr(record, name) for name in RECORDED}
    named |= {f"order_{i}": values for i, values in enumerate(record.order_parameters)}
    return named | {f"params_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(params))}


def _elapsed(since: float) -> float:
    """Seconds, by the first process's clock: all processes have to act alike."""
    seconds = time.monotonic() - since
    return seconds if jax.process_count() == 1 else float(multihost_utils.broadcast_one_to_all(np.asarray(seconds)))


def _wait_for_others(moment: str) -> None:
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(moment)


def _as_it_is(state: PyTree) -> PyTree:
    return state
