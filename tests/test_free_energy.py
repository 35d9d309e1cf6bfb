"""Normalisations from swaps against closed forms; the same for two modes of known weight."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian import Gaussian
from scipy.signal import lfilter

from bayes_attn import Controls, InvalidInput, Schedule, Starts, load_ladder, sample
from bayes_attn.diagnostics import estimate
from bayes_attn.free_energy import Pool, crossing_error, pool, smear, stepping_stone, thermodynamic_integration
from bayes_attn.free_energy.profile import curves
from bayes_attn.free_energy.ratios import bennett_ratio
from bayes_attn.free_energy.resampling import replicate_counts, standard_error
from bayes_attn.sampling import temperature_path


def test_log_evidence_of_a_conjugate_gaussian() -> None:
    """Along the data amount, at 4.5 standard errors of the jackknife plus its own noise."""
    posterior, loads = Gaussian(), np.array([0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.5, 2.0])
    samples = sample(posterior, load_ladder(loads), Starts((posterior.sample_prior,), 8), Schedule(300, 100, 20), 3)
    found, exact = stepping_stone(samples), posterior.log_evidence(loads)
    assert found.value[0] == found.error[0] == 0.0
    assert np.all(np.abs(found.value - exact) < 4.5 * np.maximum(found.error, 0.005))
    assert found.gap < 0.1
    assert np.all(found.error[1:] < 0.05)
    # By integration of the force, whose uncorrected ends are bounds, and from all rungs together.
    integral = thermodynamic_integration(samples)
    assert np.all(np.abs(integral.value - exact) < 4.5 * np.maximum(integral.error, 0.005) + 0.02)
    assert np.all(integral.forward <= integral.value)
    assert np.all(integral.value <= integral.backward)
    together = pool(posterior, samples)
    error = together.error(together.log_normalisation)
    assert np.all(np.abs(together.log_normalisation[0] - exact) < 4.5 * np.maximum(error, 0.005))
    assert np.all(error < 0.08)

    # Reweighted to a load between the rungs: the exact mean of the first order parameter.
    between = Controls(np.ones(1), np.array([0.8]), np.zeros(1))
    means = together.means(together.log_tilt(between)[0], together.order[:, None])[:, 0]
    assert abs(means[0] - posterior.exact(np.array(0.8))[0]) < 4.5 * together.error(means)


def test_a_ratio_of_neighbours_that_hardly_overlap() -> None:
    """One state of a hundred reaches over: both one-sided estimates agree by chance, and Bennett's is another."""
    up, down = np.full((1, 100), -30.0), np.full((1, 100), -25.4)
    up[0, 0] = 30.0
    ratio, forward, backward = bennett_ratio(up, down)
    assert forward == pytest.approx(backward, abs=0.01)
    # expit(30 - r) = 100 expit(r - 25.4)
    assert ratio == pytest.approx(25.4 - np.log(99), abs=0.01)


SOLVE = """
import sys
import numpy as np
from pymbar import MBAR

given = np.load(sys.argv[1])
found = MBAR(given["reduced"], given["number"], relative_tolerance=1e-12)
np.save(sys.argv[2], found.compute_free_energy_differences()["Delta_f"][0])
"""


def test_the_pool_agrees_with_pymbar(tmp_path: Path) -> None:
    """The same samples through another solver, in a process of its own because it sets JAX's precision."""
    posterior = Gaussian()
    path = load_ladder([0.0, 0.1, 0.3, 0.8, 2.0])
    samples = sample(posterior, path, Starts((posterior.sample_prior,), 4), Schedule(100, 50, 10), 3)
    together = pool(posterior, samples)
    # Pooled samples are ordered by chain, scan and rung; pymbar wants those of a rung in a row.
    rung = np.arange(len(together.order)) % samples.rungs
    reduced = -together.log_tilt(samples.path)[:, np.argsort(rung, kind="stable")]
    np.savez(tmp_path / "given.npz", reduced=reduced, number=np.bincount(rung))
    command = [sys.executable, "-c", SOLVE, str(tmp_path / "given.npz"), str(tmp_path / "found.npy")]
    subprocess.run(command, check=True, capture_output=True)
    theirs = -np.load(tmp_path / "found.npy")
    np.testing.assert_allclose(together.log_normalisation[0], theirs, atol=1e-6)
    assert np.ptp(theirs) > 1


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_errors_of_a_mean_cover_it(memory: float, random_numbers: np.random.Generator) -> None:
    """68 % intervals over 200 repeats of four chains cover between 55 % and 80 % (the larger of two errors counts)."""
    chains, scans = 4, 2000
    blocks = int(scans / (2 * (1 + memory) / (1 - memory)))
    counts = replicate_counts(chains, blocks)
    block = np.minimum(np.arange(scans) * blocks // scans, blocks - 1)
    hits = 0
    for _ in range(200):
        noise = random_numbers.normal(size=(chains, scans + 300)) * np.sqrt(1 - memory**2)
        values = lfilter([1.0], [1.0, -memory], noise, axis=1)[:, 300:]
        sums = np.zeros((chains, blocks))
        np.add.at(sums.T, block, values.T)
        number = np.bincount(block, minlength=blocks)
        means = np.einsum("rcb,cb->r", counts, sums) / np.einsum("rcb,b->r", counts, number)
        hits += abs(means[0]) < float(standard_error(means, chains, blocks))
    assert 0.55 < hits / 200 < 0.80


def test_the_error_from_crossings(random_numbers: np.random.Generator) -> None:
    """Against the spread of the log-odds over 400 series of 20 round trips with exponential stays."""
    times = random_numbers.exponential(50.0, size=(400, 20, 2)).sum(axis=1)
    spread = np.log(times[:, 0] / times[:, 1]).std()
    assert spread == pytest.approx(crossing_error(20), rel=0.15)
    assert crossing_error(0) == np.inf


def test_chains_that_disagree_have_a_large_error() -> None:
    """Two pairs of chains at 0 and 1: the error of their mean is that of four independent values."""
    counts = replicate_counts(4, 100)
    means = np.einsum("rcb,c->r", counts, np.array([0.0, 1.0, 0.0, 1.0])) / counts.sum(axis=(1, 2))
    assert float(standard_error(means, 4, 100)) == pytest.approx(0.5 / np.sqrt(3), rel=1e-6)


def test_the_smear_over_data_sets_is_told_from_the_errors_within(random_numbers: np.random.Generator) -> None:
    errors = np.full(400, 0.5)
    found = smear(random_numbers.normal(3.0, np.hypot(1.0, 0.5), size=400), errors)
    assert abs(found.smear - 1.0) < 4.5 * found.smear_error
    assert abs(found.mean - 3.0) < 4.5 * found.error
    assert found.within == pytest.approx(0.5)
    assert smear(random_numbers.normal(3.0, 0.5, size=400), errors).smear < 0.3


HEAVY = 100


@pytest.mark.parametrize(
    ("samples", "heavy", "resolved"),
    [
        (3000, False, True),  # 3,000 in any six bins of the valley, all alike
        (3000, True, False),  # as many, of which 30 carry the weight
        (30, False, True),  # those 30 alone
        (9000, True, True),  # 90 that carry the weight
        (6, False, False),  # nearly nothing
    ],
)
def test_a_valley_of_few_large_weights_is_not_resolved(samples: int, heavy: bool, resolved: bool) -> None:
    """Two peaks with evenly weighted samples; in the valley between them, each hundredth may carry nearly all."""
    edges = np.linspace(0, 1, 41)
    peaks = np.concatenate([np.linspace(0, 0.4, 20_000), np.linspace(0.6, 1, 20_000)])
    valley = np.linspace(0.4, 0.6, round(samples * 8 / 6) + 2)[1:-1]  # eight bins
    order = np.concatenate([peaks, valley])
    weights = np.concatenate([1.1 + np.cos(10 * np.pi * peaks), np.full(len(valley), 0.05)])
    if heavy:
        weights[len(peaks) :] *= np.where(np.arange(len(valley)) % HEAVY == HEAVY // 2, HEAVY, 1e-3)
    nothing = np.zeros((1, 1))
    whole = np.ones((1, len(order)))
    made_up = Pool(Gaussian(), Controls(*nothing.repeat(3, 0)), None, order, 2, 0, nothing, 0 * whole[0], whole)
    found = curves(made_up, np.log(weights), edges)
    assert found is not None
    assert found.peaks is not None
    assert found.resolved == resolved


class Coordinate(NamedTuple):
    first: jax.Array


class TwoModes(eqx.Module):
    """Prior N(0, 3^2) in two dimensions; likelihood makes two normals of unlike width and weight 0.3 : 0.7."""

    weights: tuple[float, float] = (0.3, 0.7)
    centers: tuple[float, float] = (-4.0, 4.0)
    widths: tuple[float, float] = (0.5, 0.25)
    log_evidence: float = -7.0

    @property
    def size(self) -> int:
        return 2

    def sample_prior(self, key: jax.Array) -> jax.Array:
        return 3 * jax.random.normal(key, (2,))

    def log_prior(self, params: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(params**2) / 9 - 2 * jnp.log(3 * jnp.sqrt(2 * jnp.pi))

    def log_likelihood(self, params: jax.Array, load: jax.Array) -> jax.Array:
        modes = [
            jnp.log(w) - jnp.sum((params - c) ** 2) / (2 * s**2) - 2 * jnp.log(s * jnp.sqrt(2 * jnp.pi))
            for w, c, s in zip(self.weights, self.centers, self.widths, strict=True)
        ]
        return load * (jax.scipy.special.logsumexp(jnp.stack(modes)) - self.log_prior(params) + self.log_evidence)

    def order_parameters(self, params: jax.Array) -> Coordinate:
        return Coordinate(params[0])


def test_tempering_finds_both_modes_their_weights_and_their_normalisation() -> None:
    """What a stale gradient or density would spoil: log Z, forward against backward, spread within modes, round trips.

    Two separate modes that no local move joins at the last rung; tolerances are 4.5 standard errors.
    """
    posterior = TwoModes()
    samples = sample(
        posterior, temperature_path(1.0), Starts((posterior.sample_prior,), 8), Schedule(1500, 300, 10), 5, rungs="auto"
    )
    assert samples.advice() == ()
    assert samples.position[0] == 0
    assert samples.position[-1] == 1
    x = samples.order_parameters.first[:, :, -1]
    right = estimate((x > 0).astype(float))
    assert abs(right.mean - 0.7) < 4.5 * right.error
    assert right.error < 0.02
    for side, center, width in ((x < 0, -4.0, 0.5), (x > 0, 4.0, 0.25)):
        assert x[side].mean() == pytest.approx(center, abs=0.05)
        assert x[side].std() == pytest.approx(width, rel=0.05)
    found = stepping_stone(samples)
    assert abs(found.value[-1] + 7.0) < 4.5 * found.error[-1]
    assert found.error[-1] < 0.06
    assert found.gap < 0.3
    assert 0.5 < samples.round_trip_rate_ratio < 1.1
    # The modes' widths, weighted; pooled over both it would be 3.7.
    assert np.all((samples.scale[-1] > 0.2) & (samples.scale[-1] < 0.8))
    assert np.ptp(samples.swap_rate) < 0.2


def test_runs_without_swaps_are_refused() -> None:
    posterior = Gaussian()
    run = sample(posterior, load_ladder([0.0, 1.0]), Starts((posterior.sample_prior,), 1), Schedule(10, 2, 10), 0)
    with pytest.raises(InvalidInput, match="must have two chains or more, got 1"):
        stepping_stone(run)
    run = sample(
        posterior, load_ladder([0.0, 1.0]), Starts((posterior.sample_prior,), 2), Schedule(10, 2, 10), 0,
        sampler="numpyro-nuts",
    )  # fmt: skip
    with pytest.raises(InvalidInput, match="must be of replica exchange, got 'numpyro-nuts'"):
        stepping_stone(run)
