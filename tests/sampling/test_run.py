"""Whole runs on targets with exact answers, reproducibility, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian import Gaussian

from bayes_attn import CopyTask, DataSet, InvalidInput, Samples, Schedule, load_ladder, sample
from bayes_attn.diagnostics import estimate
from bayes_attn.sampling import log_density

LOADS = np.array([0.0, 0.1, 0.4, 1.0])


def start(posterior: Gaussian, chains: int, rungs: int) -> dict[str, jax.Array]:
    return jax.vmap(jax.vmap(posterior.sample_prior))(jax.random.split(jax.random.key(3), (chains, rungs)))


@pytest.fixture(scope="module")
def run() -> Samples:
    posterior = Gaussian()
    return sample(posterior, load_ladder(LOADS), start(posterior, 4, 4), Schedule(500, 200, 10), seed=1)


def test_moments_are_the_exact_ones(run: Samples) -> None:
    """Mean and second moment of one coordinate at four rungs, at 4.5 standard errors (false alarm 6e-5 in all)."""
    mean, deviation = Gaussian().exact(LOADS)
    for rung in range(4):
        values = run.order_parameters.first[:, :, rung]
        first, second = estimate(values), estimate(values**2)
        assert abs(first.mean - mean[rung]) < 4.5 * first.error
        assert abs(second.mean - mean[rung] ** 2 - deviation[rung] ** 2) < 4.5 * second.error
        assert first.error < 0.02


def test_swap_rates_are_the_exact_ones(run: Samples) -> None:
    """Acceptance between neighbouring rungs, from independent exact draws of both."""
    generator = np.random.default_rng(5)
    posterior = Gaussian()
    mean, deviation = posterior.exact(LOADS)
    draws = mean[:, None, None] + deviation[:, None, None] * generator.normal(size=(4, 200_000, 3))
    energy = ((draws - posterior.center) ** 2).sum(-1) / (2 * posterior.width**2)
    for k in range(3):
        exact = np.mean(np.exp(np.minimum(0, (LOADS[k + 1] - LOADS[k]) * (energy[k + 1] - energy[k]))))
        assert run.swap_rate[k] == pytest.approx(exact, abs=0.015)


def test_step_sizes_reach_the_target_acceptance(run: Samples) -> None:
    acceptance = run.acceptance.mean(axis=(0, 1))
    assert acceptance[0] == 1.0
    assert np.all(np.abs(acceptance[1:] - 0.8) < 0.08)
    assert not run.divergent.any()


def test_shapes_and_records(run: Samples) -> None:
    assert run.params["x"].shape == (4, 200, 4, 3)
    assert run.params["x"].dtype == np.float32
    assert run.log_density.shape == (4, 2000, 4)
    assert np.array_equal(np.sort(run.replica_at, axis=-1), np.broadcast_to(np.arange(4), (4, 2000, 4)))
    assert run.round_trips() > 50
    at_draws = jax.tree.map(jnp.asarray, run.params["x"].astype(float))
    at_rungs = jax.vmap(lambda x, controls: log_density(Gaussian(), {"x": x}, controls), (0, 0))
    density = jax.vmap(jax.vmap(at_rungs, (0, None)), (0, None))(at_draws, jax.tree.map(jnp.asarray, run.path))
    np.testing.assert_allclose(run.log_density[:, 9::10], density, rtol=1e-4, atol=1e-4)


def test_a_run_depends_on_its_seed_and_on_nothing_else() -> None:
    posterior = Gaussian()
    path, initial = load_ladder(LOADS), start(posterior, 2, 4)

    def trace(seed: int, thin: int, draws: int) -> np.ndarray:
        return sample(posterior, path, initial, Schedule(20, draws, thin), seed).order_parameters.first

    first = trace(4, 10, 4)
    np.testing.assert_array_equal(first, trace(4, 10, 4))
    np.testing.assert_array_equal(first, trace(4, 5, 8))
    np.testing.assert_array_equal(first[:, :20], trace(4, 20, 1))
    assert not np.array_equal(first, trace(5, 10, 4))


def test_progress_is_told_after_every_chunk() -> None:
    told = []
    posterior = Gaussian()
    initial = start(posterior, 2, 4)
    sample(
        posterior, load_ladder(LOADS), initial, Schedule(20, 4, 10), 0, lambda done, total: told.append((done, total))
    )
    assert told == [(20, 60), (40, 60), (60, 60)]


def test_starts_that_do_not_fit_or_have_no_density_are_refused() -> None:
    posterior, path = Gaussian(), load_ladder(LOADS)
    with pytest.raises(InvalidInput, match="`initial` must have leading axes .chain, rung. with 4 rungs"):
        sample(posterior, path, start(posterior, 2, 3), Schedule(10, 1, 10), 0)
    bad = {"x": start(posterior, 2, 4)["x"].at[1, 2, 0].set(jnp.nan)}
    with pytest.raises(InvalidInput, match="finite log-density at every rung, got nan at chain 1, rung 2"):
        sample(posterior, path, bad, Schedule(10, 1, 10), 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws": 0}, "`draws` must be an integer of at least 1"),
        ({"thin": 0}, "`thin` must be an integer of at least 1"),
        ({"warmup": 0}, "`warmup` must be an integer of at least 1, got 0"),
        ({"max_steps": 0}, "`max_steps` must be an integer of at least 1"),
    ],
)
def test_bad_schedules_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Schedule(**arguments)


def test_loads_beyond_the_data_are_refused() -> None:
    posterior = DataSet(np.zeros((4, 5), int), CopyTask(5, 3))
    initial = jnp.zeros((1, 2, 5, 5))
    sample(posterior, load_ladder([0.0, posterior.load(4)]), initial, Schedule(10, 1, 10), 0)
    with pytest.raises(InvalidInput, match="`load` must ask for at most the 4 sequences at hand"):
        sample(posterior, load_ladder([0.0, posterior.load(5)]), initial, Schedule(10, 1, 10), 0)
