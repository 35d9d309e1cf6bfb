"""Question: does this training code find a phase transition of attention that others have published?

The positional-semantic transition of Cui, Behrens, Krzakala and Zdeborova, "A phase transition between positional and
semantic learning in a solvable model of dot-product attention", 2024 (arXiv:2402.03902). Two tokens per sample,
x = +-1 / sqrt(d) + z with z of standard deviation 1/2; the teacher attends by meaning, softmax(s s^T) with
s = z Q* / sqrt(d), mixed with a share omega of a fixed positional matrix; the student softmax(u u^T) x, where
u = x Q / sqrt(d), descends the squared error from a positional start (Q constant) and from a semantic one (Q = Q*) on
the same n = alpha d samples. Where both final losses cross is the critical alpha, found from the mean difference over
seeds at nested amounts; its error is the jackknife's over seeds.

    uv run python experiments/positional_semantic.py runs/positional-semantic
"""

import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
import tyro
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from bayes_attn import order_parameters
from bayes_attn.order_parameters import OrderParameters
from bayes_attn.training import descend
from bayes_attn.workflow.figures import BLUE, GREY, RED
from bayes_attn.workflow.store import choose_folder
from bayes_attn.workflow.study import Shown, write_study

PUBLISHED = {0.0: 0.5481, 0.1: 0.7072, 0.2: 0.9278, 0.3: 1.2410, 0.4: 1.7506}
"""Critical alpha by omega, from the paper's asymptotic theory."""
AROUND = (0.9, 1.0, 1.1)
"""Amounts of data, in units of the published alpha."""
DEVIATION, DECAY, RATE, STEPS = 0.5, 0.01, 0.15, 5_000
TEACHER = np.array([[0.6, 0.4], [0.4, 0.6]])
DIMENSION, SMALL_DIMENSION = 1_000, 120
SEEDS, SMALL_SEEDS = 48, 4
POSITIONAL, SEMANTIC = 0, 1


class Data(NamedTuple):
    """What the loss needs of the samples."""

    tokens: Float[Array, "sample 2 dimension"]
    """x."""
    gram: Float[Array, "sample 4 4"]
    """Inner products of the rows of (x, y), which say all about the error of a student's output."""
    teacher: Float[Array, " dimension"]
    """Q*."""


class Outcome(NamedTuple):
    """At the end of training."""

    loss: Float[Array, "*batch"]
    """Per sample."""
    position: Float[Array, "*batch"]
    """|mean of Q|."""
    meaning: Float[Array, "*batch"]
    """|Q . Q*| / d."""
    order_parameters: OrderParameters
    """Of the attention between both tokens; the copy mass is the mean weight on the token itself."""


def draw(key: PRNGKeyArray, samples: int, dimension: int, omega: float) -> Data:
    """Samples with the teacher's answers; those of fewer samples are the first of these."""
    noise_key, teacher_key = jax.random.split(key)
    teacher = jax.random.normal(teacher_key, (dimension,))
    one = jax.vmap(lambda number: jax.random.normal(jax.random.fold_in(noise_key, number), (2, dimension)))
    noise = DEVIATION * one(jnp.arange(samples))
    tokens = noise + jnp.array([[1.0], [-1.0]]) / np.sqrt(dimension)
    mixed = (1 - omega) * attention(noise @ teacher / np.sqrt(dimension)) + omega * TEACHER
    rows = jnp.concatenate([tokens, mixed @ noise], axis=1)
    return Data(tokens, jnp.einsum("nad,nbd->nab", rows, rows), teacher)


def attention(scores: Float[Array, "sample 2"]) -> Float[Array, "sample 2 2"]:
    return jax.nn.softmax(scores[:, :, None] * scores[:, None, :], axis=-1)


def student(data: Data, query: Float[Array, " dimension"]) -> Float[Array, "sample 2 2"]:
    return attention(data.tokens @ query / np.sqrt(data.tokens.shape[-1]))


def loss(data: Data, query: Float[Array, " dimension"]) -> Float[Array, ""]:
    """Squared error, summed over the samples, plus decay."""
    weights = student(data, query)
    error = jnp.concatenate([weights, jnp.broadcast_to(-jnp.eye(2, dtype=weights.dtype), weights.shape)], axis=-1)
    squares = jnp.einsum("nia,nab,nib->", error, data.gram, error)
    return squares / (2 * len(query)) + DECAY / 2 * jnp.sum(query**2)


@eqx.filter_jit
def trained(data: Data, steps: int) -> Outcome:
    """From the positional and from the semantic start: arrays of shape (2,)."""
    data = jax.tree.map(lambda array: array.astype(jnp.float32), data)
    dimension = len(data.teacher)
    starts = jnp.stack([jnp.full(dimension, 1 / np.sqrt(dimension), jnp.float32), data.teacher])

    def measure(query: Float[Array, " dimension"]) -> Outcome:
        pairs = jnp.arange(2)
        order = order_parameters.measure(student(data, query), pairs, pairs)
        return Outcome(
            loss(data, query) / len(data.tokens),
            jnp.abs(query.mean()),
            jnp.abs(query @ data.teacher) / dimension,
            jax.tree.map(jnp.mean, order),
        )

    descent = partial(
        descend, partial(loss, data), optimiser=optax.sgd(RATE), steps=steps, every=steps, measure=measure
    )
    _, records = jax.vmap(descent)(starts)
    return jax.tree.map(lambda record: record[:, -1], records)


def crossing(amounts: Float[np.ndarray, " amount"], difference: Float[np.ndarray, "seed amount"]) -> float:
    """The amount at which a straight line through the mean difference is 0."""
    slope, height = np.polyfit(amounts, difference.mean(axis=0), 1)
    return float(-height / slope)


def jackknife(amounts: Float[np.ndarray, " amount"], difference: Float[np.ndarray, "seed amount"]) -> float:
    """Standard error of the crossing, from leaving out one seed at a time."""
    seeds = len(difference)
    found = [crossing(amounts, np.delete(difference, seed, axis=0)) for seed in range(seeds)]
    return float(np.sqrt((seeds - 1) * np.var(found)))


def study(
    omega: float, dimension: int, seeds: int, seed: int
) -> tuple[dict[str, Any], Float[np.ndarray, "seed amount"]]:
    """One omega: what is kept, and semantic less positional loss of every seed."""
    amounts = np.round(PUBLISHED[omega] * np.array(AROUND) * dimension).astype(int)
    outcomes = []
    for number in range(seeds):
        data = draw(jax.random.fold_in(jax.random.key(seed), number), int(amounts[-1]), dimension, omega)
        first = [Data(data.tokens[:n], data.gram[:n], data.teacher) for n in amounts]
        outcomes.append(jax.tree.map(lambda *each: np.stack(each), *(jax.device_get(trained(d, STEPS)) for d in first)))
    found: Outcome = jax.tree.map(lambda *each: np.stack(each), *outcomes)
    difference = np.asarray(found.loss[..., SEMANTIC] - found.loss[..., POSITIONAL], dtype=float)
    shares = amounts / dimension
    critical = crossing(shares, difference)
    row = {
        "omega": omega,
        "critical": critical,
        "error": jackknife(shares, difference),
        "published": PUBLISHED[omega],
        "alpha": shares.tolist(),
        "loss_difference": difference.mean(axis=0).tolist(),
        "loss_difference_error": (difference.std(axis=0, ddof=1) / np.sqrt(seeds)).tolist(),
    }
    middle = len(AROUND) // 2
    for branch, name in ((POSITIONAL, "positional"), (SEMANTIC, "semantic")):
        row[name] = {
            "position": float(found.position[:, middle, branch].mean()),
            "meaning": float(found.meaning[:, middle, branch].mean()),
            "weight_on_itself": float(found.order_parameters.copy_mass[:, middle, branch].mean()),
            "participation": float(found.order_parameters.participation[:, middle, branch].mean()),
        }
    return row, difference


def critical_figure(rows: list[dict[str, Any]]) -> Figure:
    figure, (above, below) = plt.subplots(2, 1, figsize=(6.4, 5.4), sharex=True, height_ratios=(2, 1))
    omegas = np.array([row["omega"] for row in rows])
    critical, error = (np.array([row[name] for row in rows]) for name in ("critical", "error"))
    published = np.array([row["published"] for row in rows])
    above.plot(omegas, published, color=GREY, label="published, from theory")
    above.errorbar(omegas, critical, error, fmt="o", color=BLUE, capsize=3, label="descent, this code")
    above.set(ylabel="critical α = n / d", title="Positional–semantic transition")
    above.legend()
    below.axhline(0, color=GREY)
    below.axhspan(-3, 3, color=GREY, alpha=0.15, lw=0)
    below.errorbar(omegas, 100 * (critical / published - 1), 100 * error / published, fmt="o", color=BLUE, capsize=3)
    below.set(xlabel="positional share ω of the teacher", ylabel="off by (%)")
    return figure


def loss_figure(rows: list[dict[str, Any]], differences: list[Float[np.ndarray, "seed amount"]]) -> Figure:
    figure, panels = plt.subplots(1, len(rows), figsize=(2.3 * len(rows) + 0.8, 3.2), squeeze=False)
    for axes, row, difference in zip(panels[0], rows, differences, strict=True):
        axes.plot(row["alpha"], 1e4 * difference.T, color=GREY, lw=0.5, alpha=0.6)
        mean, error = 1e4 * np.array(row["loss_difference"]), 1e4 * np.array(row["loss_difference_error"])
        axes.errorbar(row["alpha"], mean, error, fmt="o-", ms=4, color=BLUE, capsize=3)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.axvline(row["published"], color=RED, ls="--", lw=1)
        axes.set(xlabel="α", title=f"ω = {row['omega']:g}")
    panels[0, 0].set_ylabel("semantic less positional\nloss per sample (10⁻⁴)")
    return figure


def main(out: Path | None = None, small: bool = False, seed: int = 0) -> None:
    """Train both starts for every omega, and write a report with its figures and a JSON.

    Parameters
    ----------
    out: folder, new or empty; default below runs/.
    small: one omega at a small dimension, for the tests.
    seed: fixes every random number.
    """
    dimension, seeds = (SMALL_DIMENSION, SMALL_SEEDS) if small else (DIMENSION, SEEDS)
    folder = choose_folder(out, "positional-semantic", "positional_semantic")
    rows, differences, sentences = [], [], []
    for omega in (0.3,) if small else PUBLISHED:
        row, difference = study(omega, dimension, seeds, seed)
        rows.append(row)
        differences.append(difference)
        off = row["critical"] - row["published"]
        sentences.append(
            f"ω = {omega:g}: α = {row['critical']:.4f} ± {row['error']:.4f}, published {PUBLISHED[omega]:.4f}, "
            f"off by {off / row['published']:+.1%}, {off / row['error']:+.1f} standard errors."
        )
        print(sentences[-1], flush=True)
    shown = {
        "critical": Shown(
            "Critical amount of data",
            f"Mean over {seeds} seeds at d = {dimension} with standard errors; shaded: 3 %.",
            critical_figure(rows),
        ),
        "losses": Shown(
            "Where the losses cross",
            "Final loss from the semantic start less the positional one's, on the same samples. Thin: one seed, "
            "points: their mean with standard errors; dashed: published.",
            loss_figure(rows, differences),
        ),
    }
    content = {"dimension": dimension, "seeds": seeds, "seed": seed, "rows": rows}
    write_study(folder, "positional_semantic", __doc__, sentences, shown, content)


if __name__ == "__main__":
    tyro.cli(main)
