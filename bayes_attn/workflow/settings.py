"""What a user may set. Light to import: the command line reads its options off these classes."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

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

    data: float
    """Sequences at hand."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object on standard output and nothing else."""


@dataclass(frozen=True, kw_only=True)
class TransitionSettings(ModelSettings):
    """The main job: theory, sampling across data amounts, figures, a report and a verdict.

    Example: bayes-attn transition --small --out runs/first
    """

    posterior: Annotated[str | None, tyro.conf.arg(metavar="population|dataset")] = None
    """population (statistics averaged over the data) or dataset (one set of sequences). Default: population, or
    dataset if --tokens is given."""
    tokens: Annotated[Path | None, tyro.conf.arg(metavar="FILE.npy")] = None
    """A .npy file of your own sequences: integers of shape (P, L), each from 0 to V - 1. Without it the sequences of a
    data-set posterior are drawn from the seed."""
    seed: int = 0
    """Fixes every random number."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the results, new or empty. Default: a new folder below runs/."""
    small: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """A quick look: fewer data amounts and shorter chains."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print results.json on standard output and nothing else."""


def population(settings: ModelSettings) -> "Population":
    """The population posterior that the settings describe. Raises InvalidInput for bad settings."""
    from bayes_attn.posterior import Population
    from bayes_attn.tasks import CopyTask

    return Population(
        CopyTask(settings.length, settings.vocab),
        settings.attention,
        settings.logit_scale,
        settings.value_scale,
        settings.noise,
    )


def theory_json(settings: ModelSettings, transition: "Transition") -> dict[str, Any]:
    """The keys that `theory --json` and results.json share; None where one does not apply."""
    model = {name: getattr(settings, name) for name in ModelSettings.__dataclass_fields__}
    return model | asdict(transition)
