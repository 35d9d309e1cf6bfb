"""Swaps and one joint scan, against brute force, exact counts and exact draws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian import Gaussian
from scipy import stats

from bayes_attn import Controls, load_ladder
from bayes_attn.sampling import log_density
from bayes_attn.sampling.controls import conditioned
from bayes_attn.sampling.run import _count_returns
from bayes_attn.sampling.tempering import Replicas, Scan, by_rung, partners, scan, swap


@eqx.filter_jit
def one_scan(posterior: Gaussian, path: Controls, *rest: Any) -> tuple[Replicas, Scan]:
    return scan(conditioned(posterior, path), path, *rest)


def test_a_sweep_is_a_permutation_of_paired_neighbours(key: jax.Array) -> None:
    for number, draw in enumerate(jax.random.split(key, 20)):
        own, crossed = jax.random.normal(draw, (2, 5, 7))
        source, probability = swap(draw, own, crossed, jnp.asarray(number % 2))
        assert np.sort(np.asarray(source), axis=1).tolist() == [list(range(7))] * 5
        partner = np.asarray(partners(7, jnp.asarray(number % 2)))
        assert np.all((np.asarray(source) == np.arange(7)) | (np.asarray(source) == partner))
        tried = np.arange(6) % 2 == number % 2
        assert np.array_equal(~np.isnan(np.asarray(probability)).all(axis=0), tried)


def test_the_ratio_is_the_brute_force_one(key: jax.Array) -> None:
    posterior, path = Gaussian(), load_ladder([0.0, 0.4, 1.1, 2.0])
    params = jax.vmap(posterior.sample_prior)(jax.random.split(key, 4))

    def density(state: int, rung: int) -> float:
        at = jax.tree.map(lambda leaf: leaf[state], params)
        return float(log_density(posterior, at, jax.tree.map(lambda control: control[rung], path)))

    for parity in (0, 1):
        partner = np.asarray(partners(4, jnp.asarray(parity)))
        own = jnp.array([[density(k, k) for k in range(4)]])
        crossed = jnp.array([[density(k, int(partner[k])) for k in range(4)]])
        _, probability = swap(key, own, crossed, jnp.asarray(parity))
        for k in range(parity, 3, 2):
            joint_before = sum(density(i, i) for i in range(4))
            order = [0, 1, 2, 3]
            order[k], order[k + 1] = k + 1, k
            joint_after = sum(density(order[i], i) for i in range(4))
            assert float(probability[0, k]) == pytest.approx(min(1.0, np.exp(joint_after - joint_before)), rel=1e-9)


def test_a_density_that_is_not_a_number_is_never_swapped(key: jax.Array) -> None:
    own = jnp.zeros((1, 4)).at[0, 1].set(jnp.nan)
    source, probability = swap(key, own, jnp.zeros((1, 4)), jnp.asarray(0))
    assert source[0, :2].tolist() == [0, 1]
    assert float(probability[0, 0]) == 0.0
    assert source[0, 2:].tolist() == [3, 2]


@pytest.mark.parametrize(("rungs", "scans"), [(4, 64), (5, 128), (2, 16)])
def test_round_trips_when_every_swap_is_accepted(rungs: int, scans: int, key: jax.Array) -> None:
    """Deterministic: sum over replicas i < N of floor(max(scans - i, 0) / 2N)."""
    replica_at = np.arange(rungs)[None]
    history = [replica_at]
    for number in range(scans):
        source, _ = swap(key, jnp.zeros((1, rungs)), jnp.zeros((1, rungs)), jnp.asarray(number % 2))
        replica_at = np.take_along_axis(replica_at, np.asarray(source), axis=1)
        history.append(replica_at)
    rung = np.argsort(np.stack(history, axis=1), axis=-1)
    expected = sum(max(scans - i, 0) // (2 * rungs) for i in range(rungs))
    assert _count_returns(rung == 0, rung == rungs - 1) == expected


def test_one_scan_leaves_exact_draws_exact(key: jax.Array) -> None:
    """Forward simulation: replicas drawn exactly at every rung stay exact through exploration and swaps.

    Kolmogorov-Smirnov on two scalars at each of four rungs, with a false-alarm rate of 1e-3 in all (Bonferroni).
    """
    posterior, loads, chains = Gaussian(), np.array([0.0, 0.15, 0.5, 1.2]), 4000
    mean, deviation = posterior.exact(loads)
    x = mean[:, None] + deviation[:, None] * jax.random.normal(key, (chains, 4, 3))
    state = Replicas({"x": x}, jnp.broadcast_to(jnp.arange(4), (chains, 4)))
    steps = jnp.array([0.5, 0.45, 0.4, 0.3])
    swapped = 0
    for number in range(3):
        state, record = one_scan(posterior, load_ladder(loads), key, jnp.asarray(number), state, steps, 6, (0,))
        swapped += int(np.sum(np.asarray(record.replica_at) != np.arange(4)))
    assert swapped > chains
    draws = np.asarray(by_rung(state)["x"])
    for rung in range(4):
        first = stats.kstest(draws[:, rung, 0], stats.norm(mean[rung], deviation[rung]).cdf)
        average = stats.kstest(draws[:, rung].mean(1), stats.norm(mean[rung], deviation[rung] / np.sqrt(3)).cdf)
        assert min(first.pvalue, average.pvalue) > 1e-3 / 8


def test_what_is_recorded_belongs_to_the_recorded_state(key: jax.Array) -> None:
    posterior, path = Gaussian(), load_ladder([0.0, 0.2, 0.6])
    params = jax.vmap(jax.vmap(posterior.sample_prior))(jax.random.split(key, (5, 3)))
    state = Replicas(params, jnp.broadcast_to(jnp.arange(3), (5, 3)))
    for number in range(4):
        state, record = one_scan(posterior, path, key, jnp.asarray(number), state, jnp.full(3, 0.3), 4, (0,))
        at_rungs = jax.vmap(lambda params, controls: log_density(posterior, params, controls))
        density = jax.vmap(at_rungs, (0, None))(by_rung(state), path)
        np.testing.assert_allclose(record.log_density, density, rtol=1e-12)
        order = jax.vmap(jax.vmap(posterior.order_parameters))(by_rung(state))
        np.testing.assert_array_equal(record.order_parameters.first, order.first)
