"""Langevin dynamics against the exact stationary law of a conjugate Gaussian at every step size, and the engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_attn import CopyTask, DataSet, InvalidInput, Schedule, load_ladder, sample
from bayes_attn.diagnostics import estimate
from bayes_attn.joint import Joint, JointParameters
from bayes_attn.training import Langevin, batch_gradient, full_gradient, gaussian_variance, walk

WALKERS = 40_000


def conjugate(step_size: float, temperature: float, friction: float | None, noise: float = 0.0) -> tuple[float, float]:
    """(variance sampled, exact) of many walkers on exp(-2.5 (x - 1)^2); the mean is checked on the way."""
    curvature, dynamics = 5.0, Langevin(step_size=step_size, temperature=temperature, friction=friction)
    relaxation = 1 / (step_size * curvature) + (0 if friction is None else 1 / (step_size * friction))
    steps = int(12 * relaxation) + 40

    def gradient(key: jax.Array, x: jax.Array) -> jax.Array:
        return curvature * (1.0 - x) + np.sqrt(noise) * jax.random.normal(key)

    def one(key: jax.Array) -> jax.Array:
        return walk(gradient, jnp.zeros(()), dynamics, key, steps, steps, lambda x: x)[0]

    last = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(3), WALKERS)))
    exact = gaussian_variance(dynamics, curvature, noise)
    assert abs(last.mean() - 1.0) < 4.5 * np.sqrt(exact / WALKERS)
    return float(last.var()), exact


@pytest.mark.parametrize(
    ("step_size", "temperature", "friction", "noise"),
    [
        (0.01, 1.0, None, 0.0),
        (0.2, 1.0, None, 0.0),
        (0.2, 0.3, None, 0.0),
        (0.1, 1.0, None, 20.0),
        (0.02, 1.0, 1.0, 0.0),
        (0.15, 1.0, 2.0, 0.0),
        (0.1, 0.5, 2.0, 20.0),
    ],
)
def test_the_variance_on_a_gaussian(step_size: float, temperature: float, friction: float | None, noise: float) -> None:
    """With the bias of its step size; 4.5 standard errors of a variance (false alarm 1e-4 in all)."""
    found, exact = conjugate(step_size, temperature, friction, noise)
    assert abs(found / exact - 1) < 4.5 * np.sqrt(2 / WALKERS)


def test_small_steps_have_no_bias_and_large_ones_as_stated() -> None:
    for friction in (None, 3.0):
        assert gaussian_variance(Langevin(step_size=1e-6, friction=friction), 4.0) == pytest.approx(0.25, rel=1e-5)
    # Half-way to divergence the overdamped variance is twice what it should be.
    assert gaussian_variance(Langevin(step_size=0.25), 4.0) == pytest.approx(0.5)


def test_nothing_moves_at_the_top_without_heat() -> None:
    """At temperature 0: gradient descent to the mode."""
    cold = Langevin(step_size=0.1, temperature=0.0)
    final, records = walk(lambda _, x: -2 * x, jnp.array([3.0]), cold, jax.random.key(0), 30, 10, lambda x: x)
    np.testing.assert_allclose(records[:, 0], 3.0 * 0.8 ** np.array([10.0, 20.0, 30.0]), rtol=1e-10)
    assert final.shape == (1,)


@pytest.fixture(scope="module")
def small() -> tuple[Joint, jax.Array]:
    task = CopyTask(5, 4)
    tokens = task.draw_tokens(jax.random.key(3), 8)
    return Joint(DataSet(np.asarray(tokens), task)), tokens


def test_batches_estimate_the_gradient_without_bias(small: tuple[Joint, jax.Array], key: jax.Array) -> None:
    """N batches of one that are all different, averaged, are the whole; and so is the batch of all."""
    joint, tokens = small
    params = joint.sample_prior(key)
    whole = full_gradient(joint, jnp.asarray(joint.collapsed.load(8.0)))(key, params)
    every = batch_gradient(joint, tokens, 8)(key, params)
    for one, other in zip(jax.tree.leaves(every), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)
    parts = [jax.grad(lambda p, t=t: 8 * joint.sequence_log_likelihood(p, t))(params) for t in tokens]
    prior = jax.grad(joint.log_prior)(params)
    mean = jax.tree.map(lambda p, *each: p + sum(each) / 8, prior, *parts)
    for one, other in zip(jax.tree.leaves(mean), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be"),
        ({"temperature": -1.0}, "`temperature` must be a finite number of at least 0, got -1.0"),
        ({"temperature": float("nan")}, "`temperature` must be a finite number"),
        ({"friction": 0.0}, "`friction` must be"),
        ({"friction": 20.0}, "`friction` must be below 1 / step_size, got 20.0"),
    ],
)
def test_bad_dynamics_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Langevin(**({"step_size": 0.1} | change))


def test_batches_and_steps_out_of_range_are_refused(small: tuple[Joint, jax.Array]) -> None:
    with pytest.raises(InvalidInput, match="`batch` must be at most the 8 sequences, got 9"):
        batch_gradient(*small, 9)
    with pytest.raises(InvalidInput, match="`batch` must be an integer of at least 1, got 0"):
        batch_gradient(*small, 0)
    with pytest.raises(InvalidInput, match="`step_size` must be below 0.5, got 0.5"):
        gaussian_variance(Langevin(step_size=0.5), 4.0)
    with pytest.raises(InvalidInput, match="`step_size` must be below 0.25, got 0.3"):
        gaussian_variance(Langevin(step_size=0.3, friction=1.0), 4.0)


@pytest.mark.slow
def test_langevin_agrees_with_the_engine_in_each_phase() -> None:
    """L = V = 8, below and above the transition: full batch, underdamped and overdamped; batches; 4.5 standard errors.

    Steps are short enough for a bias of at most half a per cent of m, which is allowed for.
    """
    task = CopyTask(8, 8)
    tokens = task.draw_tokens(jax.random.key(3), 40)
    posterior = DataSet(np.asarray(tokens), task)
    joint, amounts = Joint(posterior), np.array([10.0, 40.0])
    loads = np.array([float(posterior.load(amount)) for amount in amounts])
    ladder = np.concatenate([[0.0, 0.5], [loads[0]], [1.8, 2.4, 3.4], [loads[1]]])
    keys = jax.random.split(jax.random.key(0), (4, len(ladder)))
    start = jax.vmap(jax.vmap(posterior.sample_prior))(keys)
    engine = sample(posterior, load_ladder(ladder), start, Schedule(400, 200, 10), seed=2)

    def walks(rung: int, dynamics: Langevin, batch: int | None) -> np.ndarray:
        load = jnp.asarray(loads[rung])
        here = joint.at_load(load)
        data = tokens[: int(amounts[rung])]
        gradient = full_gradient(here, load) if batch is None else batch_gradient(joint, data, batch)

        def one(key: jax.Array) -> jax.Array:
            first = joint.sample_prior(key) if rung == 0 else joint.sample_copy(key)
            first = JointParameters(first.attention, here.best_value(first.attention, load))
            _, mass = walk(gradient, first, dynamics, key, 40_000, 40, lambda p: joint.order_parameters(p).copy_mass)
            return mass

        return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(8), 8)))[:, 100:]

    for rung, dynamics, batch in (
        (0, Langevin(step_size=0.004), None),
        (0, Langevin(step_size=0.02, friction=4.0), None),
        (0, Langevin(step_size=0.002), 5),
        (1, Langevin(step_size=0.02, friction=6.0), None),
    ):
        at = int(np.flatnonzero(ladder == loads[rung])[0])
        exact, found = estimate(engine.order_parameters.copy_mass[:, :, at]), estimate(walks(rung, dynamics, batch))
        allowed = 4.5 * np.hypot(exact.error, found.error) + 0.005 * exact.mean
        assert abs(found.mean - exact.mean) < allowed, (rung, dynamics, batch)
        assert found.error < 0.03 * exact.mean
