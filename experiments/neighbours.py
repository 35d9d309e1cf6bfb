"""Question: where does the correlation of neighbouring tokens make the theory of independent tokens fail?

The theory takes the frequencies of tokens into account, but not that neighbours in a text depend on each other. Three
data sets with the same frequencies and the same number of sequences are sampled along the data amount: windows of
characters of Python's own help text; the same windows with the characters of each shuffled, which keeps what a window
is about and destroys the order; and independent characters. Theory: independent tokens with these frequencies.

Beside m, the mean weight on the neighbours of the copied key is reported: a correlated neighbour tells something about
the key, so that weight on it is not lost.

    uv run python experiments/neighbours.py runs/neighbours
"""

import os
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import tyro
from jaxtyping import Int
from matplotlib.figure import Figure
from scipy.interpolate import PchipInterpolator
from text_tokens import text_tokens

from bayes_attn import CopyTask, DataSet, Population, Schedule, load_ladder, sample, theory
from bayes_attn.diagnostics import estimate
from bayes_attn.workflow.figures import BLUE, GREEN, GREY, ORANGE, RED
from bayes_attn.workflow.store import choose_folder, write_json, written_whole

MULTIPLES = np.array([0.3, 0.5, 0.65, 0.75, 0.83, 0.9, 0.95, 1.0, 1.05, 1.12, 1.2, 1.3])
"""Data amounts, in units of the theory's transition."""


def data_sets(text: Int[np.ndarray, "sequence position"], seed: int) -> dict[str, Int[np.ndarray, "sequence position"]]:
    """The text, its windows shuffled inside, and independent draws with the same frequencies."""
    generator = np.random.default_rng(seed)
    return {
        "text": text,
        "shuffled windows": generator.permuted(text, axis=1),
        "independent": generator.permutation(text.ravel()).reshape(text.shape),
    }


def mutual_information(tokens: Int[np.ndarray, "sequence position"], distance: int, vocab: int) -> float:
    """Between tokens at a distance on the ring, in nats."""
    joint = np.zeros((vocab, vocab))
    np.add.at(joint, (tokens.ravel(), np.roll(tokens, -distance, axis=1).ravel()), 1)
    joint /= joint.sum()
    product = np.outer(joint.sum(1), joint.sum(0))
    known = joint > 0
    return float(np.sum(joint[known] * np.log(joint[known] / product[known])))


def measure(
    tokens: Int[np.ndarray, "sequence position"], base: Population, amounts: np.ndarray, draws: int
) -> list[dict[str, float]]:
    """Sampled order parameters at each data amount."""
    posterior = DataSet(tokens, base.task, prefixes=amounts)
    loads = [posterior.load(int(amount)) for amount in amounts]
    keys = jax.random.split(jax.random.key(3), (2, 4, len(loads)))
    cold = jax.vmap(jax.vmap(posterior.sample_prior))(keys[0])
    hot = jax.vmap(jax.vmap(posterior.sample_copy))(keys[1])
    start = jnp.where((jnp.arange(4) % 2 == 1)[:, None, None, None], hot, cold)
    samples = sample(posterior, load_ladder(loads), start, Schedule(800, draws, 40), seed=5)
    weights = np.asarray(jax.nn.softmax(jnp.asarray(samples.params), axis=-1))
    position = np.arange(base.task.length)
    rows = []
    for rung, amount in enumerate(amounts):
        copy_mass = estimate(samples.order_parameters.copy_mass[:, :, rung])
        beside = [weights[:, :, rung][..., position, (position - 1 + shift) % base.task.length] for shift in (-1, 1)]
        neighbours = estimate(np.mean(np.mean(beside, axis=0), axis=-1))
        rows.append(
            {
                "data": int(amount), "copy_mass": copy_mass.mean, "copy_mass_error": copy_mass.error,
                "rhat": copy_mass.rhat, "neighbour_mass": neighbours.mean, "neighbour_mass_error": neighbours.error,
            }
        )  # fmt: skip
    return rows


def study(length: int, vocab: int, draws: int) -> dict[str, Any]:
    """Everything, for one vocabulary."""
    text = text_tokens(" ".join(topics.values()), length, vocab, 10**6, seed=0)
    counts = np.bincount(text.ravel(), minlength=vocab)
    base = Population(CopyTask(length, vocab, frequencies=tuple((counts / counts.sum()).tolist())))
    found = theory.transition(base)
    amounts = np.unique(np.round(MULTIPLES * base.num_sequences(found.steepest_load)).astype(int))
    densities = theory.densities(base, [base.load(int(amount)) for amount in amounts])
    sets = data_sets(text, seed=1)
    return {
        "length": length,
        "vocab": vocab,
        "theory_data": base.num_sequences(found.steepest_load),
        "theory_order": found.order,
        "theory_barrier": found.barrier,
        "data": amounts.tolist(),
        "theory_copy_mass": [None if density is None else density.mean() for density in densities],
        "mutual_information": {
            name: [mutual_information(tokens, distance, vocab) for distance in (1, 2, 4)]
            for name, tokens in sets.items()
        },
        "rows": {name: measure(tokens[: amounts[-1]], base, amounts, draws) for name, tokens in sets.items()},
    }


def draw(content: dict[str, Any]) -> Figure:
    """m and the mass beside the copied key, against the data."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), sharex=True)
    colours = {"text": RED, "shuffled windows": ORANGE, "independent": GREEN}
    fine = np.linspace(content["data"][0], content["data"][-1], 300)
    known = [(x, y) for x, y in zip(content["data"], content["theory_copy_mass"], strict=True) if y is not None]
    left.plot(fine, PchipInterpolator(*zip(*known, strict=True))(fine), color=BLUE, label="theory, independent tokens")
    left.axvline(content["theory_data"], color=GREY, lw=0.8, ls=":")
    for name, rows in content["rows"].items():
        for axes, quantity in ((left, "copy_mass"), (right, "neighbour_mass")):
            values, errors = ([row[key] for row in rows] for key in (quantity, f"{quantity}_error"))
            axes.errorbar(content["data"], values, errors, fmt="o", ms=4, capsize=2, color=colours[name], label=name)
    left.set_ylabel("mean copy mass m")
    right.set_ylabel("mean weight on a neighbour of the copied key")
    for axes in (left, right):
        axes.set_xlabel("data amount P (sequences)")
        axes.set_ylim(bottom=0)
    left.legend(fontsize=8)
    return figure


def main(folder: tyro.conf.Positional[Path], vocab: int = 27, length: int = 16, draws: int = 100) -> None:
    """Write neighbours.json, .png and .svg into a new folder, and print a line per data set."""
    folder = choose_folder(folder, "neighbours", "neighbours")
    with written_whole(folder) as scratch:
        content = study(length, vocab, draws)
        write_json(scratch / "neighbours.json", content)
        figure = draw(content)
        for ending in ("png", "svg"):
            figure.savefig(scratch / f"neighbours.{ending}")
        plt.close(figure)
    print(f"theory: the copy mass rises at {content['theory_data']:.1f} sequences ({content['theory_order']})")
    for name, rows in content["rows"].items():
        masses = ", ".join(f"{row['data']}: {row['copy_mass']:.3f}({row['copy_mass_error']:.3f})" for row in rows)
        information = ", ".join(f"{value:.3f}" for value in content["mutual_information"][name])
        print(f"{name}: information at distances 1, 2, 4: {information} nats; m at {masses}")


if __name__ == "__main__":
    tyro.cli(main)
