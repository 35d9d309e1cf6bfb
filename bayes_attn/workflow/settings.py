"""What a user may set. Light to import: the command line reads its options off these classes."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bayes_attn.errors import InvalidInput, require, require_integer

if TYPE_CHECKING:
    from bayes_attn.posterior import Population
    from bayes_attn.theory import Transition


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The model: a single attention layer that is trained to copy the previous token."""

    attention: Annotated[str, tyro.conf.arg(metavar="softmax|linear")] = "softmax"
    """Kind of attention: softmax or linear."""
    length: int = 16
    """Positions L in a sequence, at least 3."""
    vocab: int = 16
    """Tokens V in the vocabulary, at least 2."""
    logit_scale: float = 1.0
    """Prior scale of the attention logits: standard deviation of a logit (softmax), or of sqrt(L) times a logit
    (linear)."""
    value_scale: float = 1.0
    """Prior scale of the value matrix: its entries have variance value_scale^2 / V."""
    noise: float = 1.0
    """Variance of the likelihood per output entry."""
    causal: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Queries see earlier keys only; without it positions lie on a ring."""
    prior: Annotated[str, tyro.conf.arg(metavar="iid|relative-bias|head-product")] = "iid"
    """Prior over the logits: independent, one bias per distance shared by all rows, or the product of a head's queries
    and keys."""
    head_dimension: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """With --prior head-product: dimension of queries and keys."""
    zipf: Annotated[float | None, tyro.conf.arg(metavar="EXPONENT")] = None
    """Tokens with frequencies in proportion to 1 / rank^EXPONENT. Default: uniform."""
    token_frequencies: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .npy or text file with V frequencies or counts of tokens, instead of --zipf."""


@dataclass(frozen=True, kw_only=True)
class TheorySettings(ModelSettings):
    """Print the analytic part alone: where the transition lies, and of which order.

    Example: bayes-attn theory --length 32 --vocab 16
    """

    density: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """With --json: add the density of the copy mass at --load."""
    load: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """Where --density is taken, as a dimensionless data amount. Default: at the transition."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object on standard output and nothing else."""


@dataclass(frozen=True, kw_only=True)
class PlanSettings(ModelSettings):
    """How much data is missing until the copy head appears, for the posterior and for Adam.

    Example: bayes-attn plan --length 24 --vocab 24 --data 50
    """

    data: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """Sequences at hand."""
    table: Annotated[Path | None, tyro.conf.arg(metavar="FILE.csv")] = None
    """A list of settings instead: a CSV file whose header names options (data, length, noise, ...), one setting per
    row; options it leaves out are those of the command line."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object on standard output and nothing else."""


@dataclass(frozen=True, kw_only=True)
class PhaseDiagramSettings(ModelSettings):
    """Regions of the disordered and the copy phase over two settings, with the spinodals, from the theory.

    Example: bayes-attn phase-diagram --x load --y field --length 24 --vocab 24
    """

    x: Annotated[str, tyro.conf.arg(metavar="NAME[:FROM:TO:COUNT]")] = "load"
    """Horizontal axis: load, field, length, vocab or logit-scale, as NAME:FROM:TO:COUNT; the name alone takes a range
    about the transition."""
    y: Annotated[str, tyro.conf.arg(metavar="NAME[:FROM:TO:COUNT]")] = "field"
    """Vertical axis, likewise."""
    load: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """The load, where it is no axis. Default: that of the transition."""
    field: float = 0.0
    """The field conjugate to the copy mass, where it is no axis."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the results, new or empty. Default: a new folder below runs/."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print phase_diagram.json on standard output and nothing else."""


@dataclass(frozen=True, kw_only=True)
class TransitionSettings(ModelSettings):
    """The main job: theory, sampling across data amounts, figures, a report and a verdict.

    Example: bayes-attn transition --small --out runs/first
    """

    length: int = 24
    """Positions L in a sequence, at least 3."""
    vocab: int = 24
    """Tokens V in the vocabulary, at least 2."""
    posterior: Annotated[str | None, tyro.conf.arg(metavar="population|dataset")] = None
    """population (statistics averaged over the data) or dataset (one set of sequences). Default: population, or
    dataset if --tokens is given."""
    tokens: Annotated[Path | None, tyro.conf.arg(metavar="FILE.npy")] = None
    """A .npy file of your own sequences: integers of shape (P, L), each from 0 to V - 1. Without it the sequences of a
    data-set posterior are drawn from the seed."""
    path: Annotated[str | None, tyro.conf.arg(metavar="load|detour")] = None
    """How the ladder crosses the transition: load (along the data amount alone) or detour (at the transition also along
    the line of coexistence to its critical end point and back). Default: detour where the barrier is above 2 kT."""
    sizes: Annotated[str | None, tyro.conf.arg(metavar="L,L,...|none")] = None
    """Smaller lengths at which the same is run in short, for the growth of the barrier: along V = L where vocab equals
    length, else at the same vocab. Default: three of them for the population posterior, none for a data set."""
    seed: int = 0
    """Fixes every random number."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the results, new or empty. Default: a new folder below runs/."""
    small: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """A quick look: fewer data amounts and shorter chains."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print results.json on standard output and nothing else."""


@dataclass(frozen=True, kw_only=True)
class SampleSettings(ModelSettings):
    """Sample along one path, with any sampler; a killed run goes on with --resume.

    Example: bayes-attn sample --path coexistence --length 24 --vocab 24 --out runs/line
    """

    path: Annotated[str, tyro.conf.arg(metavar="temperature|load|field|coexistence|four-legs")] = "load"
    """temperature: from the prior to --load. load: from no data to --load. field: from 0 to --field at --load.
    coexistence: from --load down the line of coexistence to beyond its critical end point. four-legs: from the
    disordered to the copy phase at --load, round the end point."""
    load: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """The target's load. Default: that of the transition."""
    field: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """Where --path field ends, or how far --path four-legs goes. Default for four-legs: from the theory where there is
    one, else from a short pilot."""
    rungs: Annotated[str, tyro.conf.arg(metavar="auto|INT")] = "auto"
    """Rungs on the path; auto adds them until neighbours' barrier is below one half. 1: the target alone."""
    sampler: Annotated[str, tyro.conf.arg(metavar="hmc|nuts|mala|langevin|numpyro-nuts|blackjax-nuts|tempered-smc")] = (
        "hmc"
    )
    """Explorer of replica exchange; the last three run every rung alone, as independent checks."""
    chains: int = 4
    """Independent chains; even ones start from prior draws, odd ones from the copy pattern."""
    warmup: int = 1_000
    """Scans thrown away, in rounds that double."""
    draws: int = 200
    """Recorded draws of the logits per chain."""
    thin: int = 20
    """Scans per recorded draw."""
    max_steps: int = 8
    """Leapfrog steps per scan are uniform on 1 ... this."""
    precision: Annotated[str, tyro.conf.arg(metavar="double|mixed")] = "double"
    """mixed: single precision for the explorer, corrected with the ratio in double precision."""
    tokens: Annotated[Path | None, tyro.conf.arg(metavar="FILE.npy")] = None
    """A .npy file of your own sequences; without it the population posterior is sampled."""
    seed: int = 0
    """Fixes every random number."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the results, new or empty. Default: a new folder below runs/."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on with the run in --out, which must have the same settings."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print results.json on standard output and nothing else."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings(ModelSettings):
    """Train by Adam on data sets of every amount, from scratch and from the copy pattern, beside the landscape.

    Example: bayes-attn train --attention linear --out runs/linear
    """

    data: Annotated[str, tyro.conf.arg(metavar="auto|P,P,...")] = "auto"
    """Data amounts in sequences, increasing; auto takes 16 about the landscape's own."""
    seeds: int = 8
    """Data sets, and starting points, one of each per seed."""
    steps: int = 3_000
    """Of Adam, on the whole data set."""
    rate: float = 0.02
    """Adam's learning rate."""
    every: int = 20
    """Steps between two records; divides --steps."""
    plain: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Without the priors as decay."""
    seed: int = 0
    """Fixes every random number."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the results, new or empty. Default: a new folder below runs/."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print results.json on standard output and nothing else."""


def population(settings: ModelSettings, frequencies: tuple[float, ...] | None = None) -> "Population":
    """The population posterior that the settings describe; `frequencies` are those of the user's own tokens.

    Raises InvalidInput for bad settings.
    """
    from functools import partial

    from bayes_attn.posterior import Population
    from bayes_attn.priors import HeadProduct, IidLogits, RelativeBias
    from bayes_attn.tasks import CopyTask
    from bayes_attn.workflow.store import load_frequencies

    priors = {"iid": IidLogits, "relative-bias": RelativeBias}
    dimension = settings.head_dimension
    if settings.prior == "head-product":
        if dimension is None:
            raise InvalidInput("model: `head_dimension` must be set with prior head-product, got None.")
        priors["head-product"] = partial(HeadProduct, head_dimension=dimension)
    elif dimension is not None:
        raise InvalidInput(f"model: `head_dimension` goes with prior head-product, got {dimension}.")
    if settings.prior not in priors:
        raise InvalidInput(f"model: `prior` must be iid, relative-bias or head-product, got {settings.prior!r}.")
    given = [name for name in ("zipf", "token_frequencies") if getattr(settings, name) is not None]
    if len(given) + (frequencies is not None) > 1:
        other = "own tokens, whose frequencies are counted" if frequencies is not None else "token_frequencies"
        raise InvalidInput(f"model: `{given[0]}` does not go with {other}, got {getattr(settings, given[0])!s}.")
    if settings.zipf is not None:
        require(0 <= settings.zipf < float("inf"), "model", "zipf", "must be a number of at least 0", settings.zipf)
        require_integer("model", "vocab", settings.vocab, least=2)
        weights = [rank**-settings.zipf for rank in range(1, settings.vocab + 1)]
        frequencies = tuple(weight / sum(weights) for weight in weights)
    if settings.token_frequencies is not None:
        frequencies = load_frequencies(settings.token_frequencies, settings.vocab)
    return Population(
        CopyTask(settings.length, settings.vocab, settings.causal, frequencies),
        settings.attention,
        settings.logit_scale,
        settings.value_scale,
        settings.noise,
        priors[settings.prior],
    )


def model_json(settings: ModelSettings) -> dict[str, Any]:
    """The model's settings as they stand in every JSON output."""
    model = {name: getattr(settings, name) for name in ModelSettings.__dataclass_fields__}
    return {name: str(value) if isinstance(value, Path) else value for name, value in model.items()}


def theory_json(settings: ModelSettings, transition: "Transition") -> dict[str, Any]:
    """The keys that `theory --json` and results.json share; None where one does not apply."""
    return model_json(settings) | asdict(transition)
