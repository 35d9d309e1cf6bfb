"""Densities at points of control space, and paths through it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian import Gaussian

from bayes_attn import Controls, InvalidInput, Path, Population, Schedule, Starts, load_ladder, sample
from bayes_attn.sampling import (
    coexistence_path,
    detour,
    field_path,
    four_legs,
    load_path,
    log_density,
    temperature_path,
)
from bayes_attn.sampling.controls import is_prior


def test_density_is_the_sum_of_its_terms(key: jax.Array) -> None:
    posterior = Gaussian()
    params = posterior.sample_prior(key)
    controls = Controls(jnp.asarray(0.7), jnp.asarray(1.3), jnp.asarray(-0.4))
    expected = posterior.log_prior(params) + 0.7 * posterior.log_likelihood(params, 1.3)
    expected += 3 * -0.4 * posterior.order_parameters(params).mean_coordinate
    assert float(log_density(posterior, params, controls)) == pytest.approx(float(expected), rel=1e-12)


def test_there_is_no_density_outside_a_window(key: jax.Array) -> None:
    posterior = Gaussian()
    params = posterior.sample_prior(key)
    m = float(posterior.order_parameters(params)[0])
    plain = Controls(jnp.asarray(1.0), jnp.asarray(1.0), jnp.asarray(0.0))
    inside = log_density(posterior, params, plain._replace(lowest=jnp.asarray(m - 0.1), highest=jnp.asarray(m + 0.1)))
    assert float(inside) == float(log_density(posterior, params, plain))
    assert float(log_density(posterior, params, plain._replace(lowest=jnp.asarray(m + 0.1)))) == -np.inf
    assert float(log_density(posterior, params, plain._replace(highest=jnp.asarray(m - 0.1)))) == -np.inf


class Infinite(Gaussian):
    def log_likelihood(self, params: dict[str, jax.Array], load: jax.Array) -> jax.Array:
        return jnp.asarray(-jnp.inf) * load


def test_zero_temperature_factor_silences_an_infinite_likelihood(key: jax.Array) -> None:
    posterior = Infinite()
    params = posterior.sample_prior(key)
    controls = Controls(jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(0.0))
    assert float(log_density(posterior, params, controls)) == pytest.approx(float(posterior.log_prior(params)))


def test_where_the_density_is_the_prior() -> None:
    path = Controls(jnp.array([1.0, 0.0, 1.0, 0.0]), jnp.array([0.0, 2.0, 0.1, 2.0]), jnp.array([0.0, 0.0, 0.0, 1.0]))
    assert is_prior(path).tolist() == [True, True, False, False]
    assert is_prior(path._replace(lowest=jnp.array([-np.inf, 0.1, 0.0, 0.0]))).tolist() == [True, False, False, False]


@pytest.mark.parametrize("loads", [[], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0], [0.0, float("nan")], [0.0, float("inf")]])
def test_bad_ladders_are_refused(loads: list[float]) -> None:
    with pytest.raises(InvalidInput, match="`loads` must be increasing numbers of at least 0"):
        load_ladder(loads)


def test_paths_go_where_they_should() -> None:
    rungs = temperature_path(2.5).rungs(np.array([0.0, 0.25, 1.0]))
    assert [np.asarray(c).tolist() for c in rungs[:3]] == [[0.0, 0.25, 1.0], [2.5] * 3, [0.0] * 3]
    rungs = load_path([0.0, 1.0, 3.0]).rungs(np.array([0.0, 1.0, 1.5, 2.0]))
    assert np.asarray(rungs.load).tolist() == [0.0, 1.0, 2.0, 3.0]
    rungs = field_path(1.5, [0.0, -2.0]).rungs(np.array([0.5]))
    assert (float(rungs.load[0]), float(rungs.field[0])) == (1.5, -1.0)
    rungs = coexistence_path(np.array([2.0, 1.0, 0.8]), np.array([0.0, 3.0, 4.0])).rungs(np.array([0.0, 0.75, 1.0]))
    assert (np.asarray(rungs.load).tolist(), np.asarray(rungs.field).tolist()) == ([2.0, 0.9, 0.8], [0.0, 3.5, 4.0])


def test_four_legs_go_round_with_windows_on_the_first_and_the_last() -> None:
    path = four_legs(2.5, 12.0, 0.2)
    rungs = path.rungs(np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]))
    assert np.asarray(rungs.load).tolist() == [2.5, 1.25, 0.0, 0.0, 0.0, 1.25, 2.5, 2.5, 2.5]
    assert np.asarray(rungs.field).tolist() == [0.0, 0.0, 0.0, 6.0, 12.0, 12.0, 12.0, 6.0, 0.0]
    # Where legs meet the wider window holds, so that the corner without data is the prior itself.
    assert np.asarray(rungs.highest).tolist() == [0.2, 0.2] + [np.inf] * 7
    assert np.asarray(rungs.lowest).tolist() == [-np.inf] * 7 + [0.2, 0.2]
    assert np.flatnonzero(is_prior(rungs)).tolist() == [2]


def test_a_detour_leaves_the_ladder_and_comes_back() -> None:
    line = coexistence_path(np.array([2.0, 1.0]), np.array([0.0, 3.0]))
    path, joints = detour([0.0, 1.0, 2.0, 3.0], 2.0, line)
    rungs = path.rungs(np.arange(len(path.legs) + 1.0))
    assert np.asarray(rungs.load).tolist() == [0.0, 1.0, 2.0, 1.0, 2.0, 3.0]
    assert np.asarray(rungs.field).tolist() == [0.0, 0.0, 0.0, 3.0, 0.0, 0.0]
    assert np.asarray(rungs.load)[joints].tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(InvalidInput, match="`at` must be a load of the ladder, not the last"):
        detour([0.0, 2.0], 2.0, line)


@pytest.mark.parametrize(
    ("legs", "message"),
    [
        ((), "`legs` must hold at least one leg"),
        ((Controls(np.ones(1), np.ones(1), np.ones(1)),), "two vertices or more .leg 0., got 1"),
        ((Controls(np.ones(2), np.array([0.0, -1.0]), np.zeros(2)),), "`load` must be finite numbers of at least 0"),
        ((Controls(np.ones(2), np.ones(2), np.array([0.0, np.nan])),), "`field` must be finite numbers, got .nan."),
        (temperature_path(1.0).legs + temperature_path(1.0).legs, "`legs` must meet .leg 1 begins where leg 0 ends"),
        (
            (Controls(np.ones(2), np.ones(2), np.ones(2), np.full(2, 0.5), np.full(2, 0.4)),),
            "`lowest` must lie below `highest`",
        ),
    ],
)
def test_bad_paths_are_refused(legs: tuple[Controls, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Path(legs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rungs": None}, '`rungs` must be an integer of at least 5 .legs\' ends are rungs. or "auto"'),
        ({"rungs": 4}, "`rungs` must be an integer of at least 5"),
        ({"rungs": "many"}, "`rungs` must be an integer of at least 5"),
        ({"path": load_ladder([0.0, 1.0]), "rungs": 4}, "`rungs` goes with a Path; controls are used as they are"),
        (
            {"path": Controls(np.ones(2), np.ones(3), np.ones(2)), "rungs": None},
            "`controls` must be arrays of one axis",
        ),
        ({"resume": True}, "`resume` goes with `folder`"),
        ({"precision": "half"}, "`precision` must be double or mixed, got 'half'"),
        ({"devices": 2}, "`devices` must be at most the 1 there are, got 2"),
        ({"initial": Starts((), 4)}, "`draws` must hold at least one kind of start"),
    ],
)
def test_bad_settings_of_a_run_are_refused(change: dict, message: str, softmax_16: Population) -> None:
    settings = {"path": four_legs(2.6, 8.0, 0.2), "rungs": 8, "schedule": Schedule(10, 1, 10), "seed": 0}
    settings |= {"initial": Starts((softmax_16.sample_prior, softmax_16.sample_copy), 2)} | change
    with pytest.raises(InvalidInput, match=message):
        sample(softmax_16, **settings)
