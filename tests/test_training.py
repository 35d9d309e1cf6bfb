"""Training: descent against its closed form, switches against the landscape's, and settings that are refused."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bayes_attn import CopyTask, DataSet, InvalidInput, Population, theory
from bayes_attn.joint import Joint, JointParameters
from bayes_attn.training import Regimen, Training, descend, largest_step, train


def test_descent_of_a_quadratic() -> None:
    """Gradient descent shrinks every direction by 1 - rate * curvature per step; records are where they should be."""
    curvature, start = jnp.array([0.5, 2.0]), jnp.array([3.0, -1.0])
    final, records = descend(
        lambda x: 0.5 * jnp.sum(curvature * x**2), start, optax.sgd(0.1), steps=12, every=4, measure=lambda x: x
    )
    exact = start * (1 - 0.1 * curvature) ** np.array([0, 4, 8, 12])[:, None]
    np.testing.assert_allclose(records, exact, rtol=1e-12)
    np.testing.assert_allclose(final, exact[-1], rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "`steps` must be an integer of at least 1, got 0"),
        ({"every": 7}, "`every` must divide the 3000 steps, got 7"),
        ({"rate": -0.1}, "`rate` must be"),
        ({"rate": float("nan")}, "`rate` must be"),
        ({"starts": ()}, "`starts` must be different ones of cold, hot"),
        ({"starts": ("cold", "cold")}, "`starts` must be different ones"),
        ({"starts": ("warm",)}, "`starts` must be different ones"),
    ],
)
def test_bad_regimens_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Regimen(**change)


@pytest.mark.parametrize("amounts", [[], [0.0, 1.0], [2.0, 1.0], [1.0, 1.0]])
def test_bad_amounts_are_refused(amounts: list[float]) -> None:
    with pytest.raises(InvalidInput, match="`amounts` must be positive and increase"):
        train([Joint(Population(CopyTask(6, 6)))], amounts)


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(InvalidInput, match="`posteriors` must hold at least one, got 0"):
        train([], [1.0])


def test_more_data_than_there_are_is_refused() -> None:
    task = CopyTask(6, 6)
    joint = Joint(DataSet(np.asarray(task.draw_tokens(jax.random.key(0), 5)), task))
    with pytest.raises(InvalidInput, match="5"):
        train([joint], [4.0, 6.0])


def test_the_largest_step_of_a_series() -> None:
    share, index = largest_step(np.array([[0.0, 1.0, 9.0, 10.0], [4.0, 3.0, 2.0, 1.0], [2.0, 2.0, 2.0, 2.0]]))
    assert share == pytest.approx([0.8, 1 / 3, 0.0])
    assert index[0] == 2


@pytest.fixture(scope="module")
def at_sixteen() -> Training:
    """Two data sets of one size, with the amounts of the theory's table."""
    task = CopyTask(16, 16)

    def joints() -> Iterator[Joint]:
        for seed in (1, 2):
            yield Joint(DataSet(np.asarray(task.draw_tokens(jax.random.key(seed), 60)), task))

    told: list[int] = []
    found = train(joints(), [22.0, 24.0, 28.0, 34.0, 40.0, 60.0], Regimen(steps=2_000, every=500), progress=told.append)
    assert told == [1, 2]
    return found


@pytest.mark.slow
def test_adam_switches_where_the_landscape_says(at_sixteen: Training) -> None:
    """Theory, section 8: the hot start at the lower spinodal (24.3 sequences), the cold one below the upper (32.4).

    Real data smear both by a few sequences; the posterior's own transition is at 41.8.
    """
    posterior = Population(CopyTask(16, 16))
    landscape = theory.landscape(posterior)
    low, high = (load / posterior.load(1.0) for load in (landscape.spinodal_low, landscape.spinodal_high))
    assert at_sixteen.final_copy_mass.shape == (2, 2, 6)
    cold, hot = (at_sixteen.switch(start, 0.29) for start in ("cold", "hot"))
    assert np.all(np.abs(hot - low) < 4)
    assert np.all((cold > low) & (cold < high + 4))
    assert np.all(hot <= cold)
    # Beyond the upper spinodal the start is forgotten, and the copy mass is that of the theory's list.
    np.testing.assert_allclose(at_sixteen.final_copy_mass[:, 0, 3:], at_sixteen.final_copy_mass[:, 1, 3:], atol=0.01)
    np.testing.assert_allclose(at_sixteen.final_copy_mass[:, 0, 3:].mean(axis=0), [0.626, 0.668, 0.733], atol=0.03)
    np.testing.assert_allclose(at_sixteen.final_copy_mass[:, 0, 0], 0.072, atol=0.01)


@pytest.mark.slow
def test_records_are_of_the_networks(at_sixteen: Training) -> None:
    """Losses and order parameters at the last step, worked out anew from the last parameters of one network."""
    task = CopyTask(16, 16)
    tokens = np.asarray(task.draw_tokens(jax.random.key(1), 60))
    parameters = JointParameters(*(np.asarray(part[0, 1, 5], dtype=float) for part in at_sixteen.final))
    weights = np.asarray(jax.nn.softmax(parameters.attention, axis=-1))

    def loss(tokens: np.ndarray) -> float:
        predicted = weights @ parameters.value[tokens]
        return float(np.mean(np.sum((np.eye(16)[np.roll(tokens, 1, axis=1)] - predicted) ** 2, axis=-1)))

    assert at_sixteen.train_loss[0, 1, 5, -1] == pytest.approx(loss(tokens), rel=1e-4)
    fresh = np.asarray(task.draw_tokens(jax.random.key(9), 20_000))
    assert at_sixteen.held_out_loss[0, 1, 5, -1] == pytest.approx(loss(fresh), rel=0.01)
    assert at_sixteen.held_out_loss[0, 1, 5, -1] > at_sixteen.train_loss[0, 1, 5, -1]
    np.testing.assert_allclose(at_sixteen.attention[1, 5, -1], weights, atol=1e-5)
    assert at_sixteen.attention.shape == (2, 6, 5, 16, 16)


def test_the_switch_of_a_made_up_run(at_sixteen: Training) -> None:
    mass = np.array([[0.1, 0.1, 0.6, 0.1, 0.7, 0.7], [0.6] * 6, [0.1] * 6])
    order = at_sixteen.order_parameters._replace(copy_mass=mass[:, None, :, None])
    made_up = replace(at_sixteen, order_parameters=order, starts=("cold",))
    np.testing.assert_array_equal(made_up.switch("cold", 0.3), [37.0, 0.0, np.inf])
