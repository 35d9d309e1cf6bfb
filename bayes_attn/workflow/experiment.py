"""The main job: from a copy task to a verdict on its phase transition.

Here, and only here in the package, theory and sampling meet: they are computed apart and then laid side by side.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from bayes_attn import theory
from bayes_attn.diagnostics import Estimate, estimate, to_datatree
from bayes_attn.errors import InvalidInput, require, require_integer
from bayes_attn.evidence import Evidence, hysteresis, measure
from bayes_attn.posterior import CopyPosterior, DataSet, Population
from bayes_attn.sampling import Path as ControlPath
from bayes_attn.sampling import Samples, Schedule, Starts, coexistence_path, detour, load_path, sample
from bayes_attn.tasks import CopyTask
from bayes_attn.theory import AnalyticProfile, Density, Transition
from bayes_attn.verdict import Verdict, judge
from bayes_attn.workflow.settings import TransitionSettings, population
from bayes_attn.workflow.store import RESULTS, choose_folder, load_tokens, write_json, written_whole

CHAINS = 4
HOT = np.arange(CHAINS) % 2 == 1
"""Half of them start from exact prior draws, half from the copy pattern."""
FULL = Schedule(warmup=1_000, draws=200, thin=40)
SMALL = Schedule(warmup=800, draws=100, thin=40)
COMPANION = Schedule(warmup=300, draws=40, thin=40)
COMPANION_RUNGS = 8
COMPANION_SIZES = (2 / 3, 3 / 4, 5 / 6)
"""Lengths of the smaller runs, in units of the main one's."""
COMPANION_LOADS = (0.9, 1.06)
"""Where a companion looks for its transition, in units of the theory's; its samples are reweighted there."""
MULTIPLES = np.array(
    [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.78, 0.85, 0.92, 0.96, 1.0, 1.04, 1.08, 1.15, 1.22, 1.3, 1.4]
)
"""Rungs, in units of the load at which the theory puts the transition; the last two thirds matter most."""
SMALL_MULTIPLES = np.array([0, 0.2, 0.4, 0.6, 0.8, 0.92, 1.0, 1.08, 1.2, 1.4])
LARGEST_BARRIER = 2.0
"""In kT: above it the ladder goes round the critical end point."""
HISTOGRAM_MULTIPLES = (0.92, 1.0, 1.08)


@dataclass(frozen=True)
class TransitionRun:
    """Everything that a report shows."""

    settings: TransitionSettings
    posterior: CopyPosterior
    transition: Transition
    densities: list[Density | None]
    """Of the copy mass (of its magnitude for linear attention), per rung, from the theory; None where it has none."""
    samples: Samples
    """On the whole path."""
    rungs: list[int]
    """Those of `samples` that lie along the data amount, without a field: the rows of every table."""
    verdict: Verdict
    phase_difference: Float[np.ndarray, " load"] | None
    """Free energy of the copy phase less that of the disordered one, from the theory, at the loads of the evidence's
    `phase_free_energies`, in kT; None where the theory has no density."""
    profile: AnalyticProfile | None
    """-log p(m) from the theory where both sampled peaks are equally high; None where there is no such point or theory.
    """
    sampling_seconds: float
    seconds: float

    @cached_property
    def shown(self) -> Samples:
        """The samples at the rows."""
        return self.samples.at(self.rungs)

    @property
    def loads(self) -> Float[np.ndarray, " rung"]:
        return np.asarray(self.shown.path.load)

    @property
    def path(self) -> str:
        """How the ladder crosses the transition: "load" or "detour"."""
        return "detour" if np.any(np.asarray(self.samples.path.field) != 0) else "load"

    @cached_property
    def copy_weight(self) -> Estimate | None:
        """Share of the copy phase at the transition; None where there is no first-order one, or it was not reached."""
        cut, critical = self.transition.copy_mass_barrier, self.transition.critical_load
        if cut is None or critical is None or self.loads[-1] < critical:
            return None
        return estimate((self.copy_mass[:, :, self.rung_near(critical)] > cut).astype(float))

    @property
    def data(self) -> Float[np.ndarray, " rung"]:
        """Data amounts, in sequences."""
        return np.array([self.posterior.num_sequences(load) for load in self.loads])

    @property
    def copy_mass(self) -> Float[np.ndarray, "chain scan rung"]:
        """Sampled copy mass; its magnitude for linear attention, whose posterior is symmetric in m."""
        values = self.shown.order_parameters[0]
        return np.abs(values) if self.settings.attention == "linear" else values

    @property
    def own_tokens(self) -> bool:
        """Whether the sequences are the user's, which need not be independent draws."""
        return self.settings.tokens is not None

    def rung_near(self, load: float) -> int:
        return int(np.argmin(np.abs(self.loads - load)))

    @property
    def histogram_rungs(self) -> list[int]:
        """Rungs below, at and above the transition; fewer where the data end before it."""
        wanted = [self.rung_near(multiple * self.transition.steepest_load) for multiple in HISTOGRAM_MULTIPLES]
        return sorted(set(wanted))

    @property
    def symbol(self) -> str:
        """How the copy mass is written: its magnitude for linear attention."""
        return "|m|" if self.settings.attention == "linear" else "m"

    def sentences(self) -> list[str]:
        """What was found, how sure it is, and what is missing; each a plain sentence."""
        settings, verdict = self.settings, self.verdict
        kind = "population" if isinstance(self.posterior, Population) else "data-set"
        size = f"L = {settings.length}, V = {settings.vocab}"
        what = f"{settings.attention.capitalize()} attention, {size}, {kind} posterior"
        return [
            f"{what}: {verdict.finding}.",
            f"Why: {'; '.join(verdict.reasons)}.",
            self._theory_sentence(),
            *self._missing_sentences(),
        ]

    def _theory_sentence(self) -> str:
        transition = self.transition
        tokens = ""
        if self.own_tokens:
            tokens = " for independent tokens with these frequencies"
        elif not isinstance(self.posterior, Population):
            tokens = ", averaged over data sets,"
        if transition.order == "first":
            exact = "" if self.profile is None else f" ({self.profile.barrier:.2f} kT in p(m) at this size)"
            return (
                f"The theory{tokens} predicts a first-order transition at load {transition.critical_load:.4f} "
                f"({transition.critical_data:.1f} sequences), metastable from {transition.spinodal_low:.3f} to "
                f"{transition.spinodal_high:.3f}, with a barrier of {transition.barrier:.2f} kT{exact}."
            )
        if transition.order == "second":
            return (
                f"The theory{tokens} predicts a second-order transition at load {transition.critical_load:.4f} "
                f"({transition.critical_data:.1f} sequences), above which m and -m are equally likely: two humps of "
                "signed m are that symmetry, not a first-order transition."
            )
        return (
            f"The theory{tokens} predicts a crossover without a transition, steepest at load "
            f"{transition.steepest_load:.4f} ({self.posterior.num_sequences(transition.steepest_load):.1f} sequences)."
        )

    def _missing_sentences(self) -> list[str]:
        verdict = self.verdict
        said = [f"Missing: {'; '.join(verdict.missing)}."] if verdict.missing else []
        if self.loads[-1] < self.transition.steepest_load:
            expected = self.posterior.num_sequences(self.transition.steepest_load)
            said.append(
                f"The data end at {self.data[-1]:.0f} sequences, short of where the theory expects the head "
                f"({expected:.0f}): more data are needed to see it."
            )
        if verdict.order == "undecided":
            if verdict.longer is None:
                said.append(
                    "No length of this run would decide: along this path replicas do not pass the transition. The way "
                    "round the critical end point (path detour) can."
                )
            elif verdict.longer > 1:
                minutes = verdict.longer * self.sampling_seconds / 60
                said.append(
                    f"A conclusive run would be {verdict.longer:.1f} times as long, about {minutes:.1f} minutes."
                )
        return said


def run_transition(
    settings: TransitionSettings, progress: Callable[[str, float], None] | None = None
) -> tuple[TransitionRun, dict[str, Any], Path]:
    """Run the main job and write its folder.

    Parameters
    ----------
    settings: what to run.
    progress: called with (what is going on, fraction done).

    Returns
    -------
    The run, the content of results.json, and the folder with posterior.nc, results.json, report.html and the figures.

    Raises
    ------
    InvalidInput: any setting is bad; nothing has been written then.
    """
    from bayes_attn.workflow.report import write_report
    from bayes_attn.workflow.results import results_json

    tell = progress or (lambda _stage, _fraction: None)
    began = time.perf_counter()
    base = population(settings)
    tokens = _tokens(settings, base.task)
    if tokens is not None:
        # The theory is that of i.i.d. tokens with the frequencies of these.
        counts = np.bincount(tokens.ravel(), minlength=settings.vocab)
        different = int(np.count_nonzero(counts))
        require(different > 1, "transition", "tokens", "must hold at least two different tokens", different)
        base = population(settings, tuple((counts / counts.sum()).tolist()))
    require_integer("transition", "seed", settings.seed, least=0)
    require(settings.path in (None, "load", "detour"), "transition", "path", "must be load or detour", settings.path)
    kind = "dataset" if tokens is not None or settings.posterior == "dataset" else "population"
    size = f"L{settings.length}-V{settings.vocab}"
    name = f"transition-{settings.attention}-{size}-{kind}-seed{settings.seed}" + "-small" * settings.small
    sizes = _sizes(settings, kind)
    folder = choose_folder(settings.out, name)
    with written_whole(folder) as scratch:
        tell("theory", 0.0)
        transition = theory.transition(base)
        posterior, loads = _posterior_and_loads(settings, base, tokens, transition)
        path, joints = _path(settings, base, transition, loads)
        densities = theory.densities(base, list(loads))
        if settings.attention == "linear":
            densities = [None if density is None else _magnitude(density) for density in densities]
        tell("theory", 1.0)

        tell("sampling", 0.0)
        starts = Starts((posterior.sample_prior, posterior.sample_copy), CHAINS)
        started = time.perf_counter()
        # Even chains start from exact prior draws, odd ones from the copy pattern.
        samples = sample(
            posterior,
            path,
            starts,
            SMALL if settings.small else FULL,
            settings.seed,
            lambda done, total: tell("sampling", done / total),
            rungs="auto",
        )
        sampling_seconds = time.perf_counter() - started
        rungs = [int(np.flatnonzero(samples.position == joint)[0]) for joint in joints]
        companions = []
        for number, length in enumerate(sizes):
            tell("smaller sizes", number / len(sizes))
            companions.append(_companion(settings, length))
        tell("smaller sizes", 1.0)
        tell("report", 0.0)
        at = float(loads[np.argmin(np.abs(loads - transition.steepest_load))])
        memory = hysteresis(posterior, at, starts, settings.seed)
        evidence = measure(posterior, samples, HOT, float(settings.length), rungs, hysteresis=memory)
        if settings.prior != "iid":
            logits = jax.vmap(jax.vmap(jax.vmap(posterior.prior.logits)))(samples.params)
            samples = replace(samples, params=np.asarray(logits))
        run = TransitionRun(
            settings, posterior, transition, densities, samples, rungs,
            judge([*companions, evidence]), _phase_difference(settings, base, evidence),
            _analytic_profile(settings, base, evidence),
            sampling_seconds, time.perf_counter() - began,
        )  # fmt: skip
        results = results_json(run)
        positions = {"query": np.arange(settings.length), "key": np.arange(settings.length)}
        tree = to_datatree(samples, "logits", ["query", "key"], positions, rungs)
        tree.attrs["results"] = json.dumps(results)
        tree.to_netcdf(scratch / "posterior.nc", engine="netcdf4")
        write_report(run, results, scratch)
        write_json(scratch / RESULTS, results)
        tell("report", 1.0)
    return run, results, folder


def _tokens(settings: TransitionSettings, task: CopyTask) -> np.ndarray | None:
    """The user's sequences, checked, or None."""
    if settings.posterior not in (None, "population", "dataset"):
        rule = "must be population or dataset"
        raise InvalidInput(f"transition: `posterior` {rule}, got {settings.posterior!r}.")
    if settings.tokens is None:
        return None
    if settings.posterior == "population":
        raise InvalidInput("transition: `posterior` must be dataset when `tokens` is given, got 'population'.")
    return load_tokens(settings.tokens, task)


def _posterior_and_loads(
    settings: TransitionSettings, base: Population, tokens: np.ndarray | None, transition: Transition
) -> tuple[CopyPosterior, Float[np.ndarray, " rung"]]:
    """What to sample, and at which loads: multiples of the theory's transition, in whole sequences for a data set."""
    loads = (SMALL_MULTIPLES if settings.small else MULTIPLES) * transition.steepest_load
    if tokens is None and settings.posterior != "dataset":
        return base, loads
    wanted = np.round([base.num_sequences(load) for load in loads]).astype(int)
    if tokens is None:
        # The data have a stream of their own, apart from the sampler's.
        key = jax.random.fold_in(jax.random.key(settings.seed), 0xDA7A)
        tokens = np.asarray(base.task.draw_tokens(key, int(wanted[-1])))
    # Fewer sequences than the ladder asks for: it ends at the last one at hand.
    wanted = np.unique(np.minimum(wanted, len(tokens)))
    if len(wanted) < 2:
        rule = "must hold enough sequences for two data amounts"
        raise InvalidInput(f"transition: `tokens` {rule}, got {len(tokens)} where the transition is near {wanted[-1]}.")
    posterior = DataSet(
        tokens, base.task, settings.attention, settings.logit_scale, settings.value_scale, settings.noise,
        prefixes=wanted[wanted > 0], prior=type(base.prior),
    )  # fmt: skip
    return posterior, np.array([posterior.load(int(amount)) for amount in wanted])


def _path(
    settings: TransitionSettings, base: Population, transition: Transition, loads: Float[np.ndarray, " row"]
) -> tuple[ControlPath, list[int]]:
    """The path to sample on, and at which of its joints the loads are.

    Where the barrier is high, swaps along the data amount cannot carry a phase across the transition. The path then
    leaves it there, follows the line of coexistence to its critical end point, where phases change freely, and returns.
    """
    high = transition.order == "first" and (transition.barrier or 0.0) > LARGEST_BARRIER
    reached = [load for load in loads[1:-1] if load <= (transition.critical_load or 0.0) * (1 + 1e-9)]
    if settings.path == "load" or (settings.path is None and not (high and reached)):
        return load_path(loads), list(range(len(loads)))
    require(transition.order == "first", "transition", "path", "needs a first-order transition", settings.path)
    require(len(reached) > 0, "transition", "path", "needs data up to the transition and beyond", settings.path)
    at = float(min(loads[1:-1], key=lambda load: abs(load - transition.steepest_load)))
    line_loads, line_fields = theory.way_to_end(base)
    line = coexistence_path(np.concatenate([[at], line_loads[1:]]), line_fields)
    return detour(loads, at, line)


def _sizes(settings: TransitionSettings, kind: str) -> list[int]:
    """Lengths of the companions, in increasing order."""
    if settings.sizes == "none":
        return []
    if settings.sizes is None:
        if kind == "dataset" or settings.token_frequencies is not None:
            return []
        wanted = {max(3, round(share * settings.length)) for share in COMPANION_SIZES}
        # Short lengths round to the same number: take the next smaller ones.
        for length in range(settings.length - 1, 2, -1):
            if len(wanted) < len(COMPANION_SIZES):
                wanted.add(length)
        return sorted(length for length in wanted if length < settings.length)
    words = settings.sizes.split(",")
    rule = f"must be none, or lengths from 3 to {settings.length - 1} with commas between"
    good = all(word.strip().isdigit() and 3 <= int(word) < settings.length for word in words)
    require(good, "transition", "sizes", rule, settings.sizes)
    require(kind == "population", "transition", "sizes", "goes with the population posterior", settings.sizes)
    return sorted({int(word) for word in words})


def _companion(settings: TransitionSettings, length: int) -> Evidence:
    """The same at a smaller length, in short: along the line of coexistence where there is one."""
    vocab = length if settings.vocab == settings.length else settings.vocab
    base = population(replace(settings, length=length, vocab=vocab))
    transition = theory.transition(base)
    starts = Starts((base.sample_prior, base.sample_copy), CHAINS)
    if transition.order == "first" and settings.prior == "iid":
        path = coexistence_path(*theory.way_to_end(base))
        samples = sample(base, path, starts, COMPANION, settings.seed, rungs=COMPANION_RUNGS)
        low, high = (share * transition.steepest_load for share in COMPANION_LOADS)
        return measure(base, samples, HOT, float(length), [0], (low, high))
    path = load_path(SMALL_MULTIPLES * transition.steepest_load)
    samples = sample(base, path, starts, COMPANION, settings.seed, rungs=len(SMALL_MULTIPLES))
    return measure(base, samples, HOT, float(length))


def _phase_difference(
    settings: TransitionSettings, base: Population, evidence: Evidence
) -> Float[np.ndarray, " load"] | None:
    """By the analytic density, parted where the sampled one is."""
    branches = evidence.phase_free_energies
    if branches is None or not _has_saddle_points(settings):
        return None
    found = []
    for m, log_density in theory.softmax.log_densities(base, branches.loads):
        weight, above = np.exp(log_density - log_density.max()) * np.gradient(m), m > branches.cut
        found.append(np.log(weight[~above].sum()) - np.log(weight[above].sum()))
    return np.array(found)


def _analytic_profile(settings: TransitionSettings, base: Population, evidence: Evidence) -> AnalyticProfile | None:
    if evidence.coexistence is None or not _has_saddle_points(settings):
        return None
    return theory.profile(base, evidence.coexistence.equal_height)


def _has_saddle_points(settings: TransitionSettings) -> bool:
    return settings.attention == "softmax" and settings.prior == "iid"


def _magnitude(density: Density) -> Density:
    """The density of |m| from that of m."""
    m, p = density
    grid = np.linspace(0, max(abs(m[0]), m[-1]), len(m))
    return Density(grid, np.interp(grid, m, p, 0, 0) + np.interp(-grid, m, p, 0, 0))
