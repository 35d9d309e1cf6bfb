"""Swaps and one joint scan, against brute force, exact counts, exact draws and the law of the momentum."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian import Gaussian
from scipy import stats

from bayes_attn import Controls, load_ladder
from bayes_attn.sampling import log_density
from bayes_attn.sampling.controls import conditioned, is_prior
from bayes_attn.sampling.explorers import EXPLORERS
from bayes_attn.sampling.samples import _count_returns
from bayes_attn.sampling.tempering import Method, Replicas, Rungs, Scan, by_rung, partners, scan, swap


@eqx.filter_jit
def one_scan(
    posterior: Gaussian, ladder: Controls, method: Method, exact: tuple[int, ...], *rest: Any
) -> tuple[Replicas, Scan]:
    scale = jnp.full((len(ladder.load), posterior.dimension), 0.8)
    rungs = Rungs(ladder, scale, jnp.asarray(exact, dtype=int))
    return scan(conditioned(posterior, ladder), rungs, method, *rest)


def replicas(x: jax.Array) -> Replicas:
    chains, rungs = x.shape[:2]
    return Replicas({"x": x}, jnp.broadcast_to(jnp.arange(rungs), (chains, rungs)), jnp.arange(chains))


def test_a_sweep_is_a_permutation_of_paired_neighbours(key: jax.Array) -> None:
    for number, draw in enumerate(jax.random.split(key, 20)):
        gain = jax.random.normal(draw, (5, 7))
        uniform = jax.random.uniform(jax.random.fold_in(draw, 1), (5, 6))
        source = swap(uniform, gain, jnp.asarray(number % 2))
        assert np.sort(np.asarray(source), axis=1).tolist() == [list(range(7))] * 5
        partner = np.asarray(partners(7, jnp.asarray(number % 2)))
        assert np.all((np.asarray(source) == np.arange(7)) | (np.asarray(source) == partner))


def test_the_ratio_is_the_brute_force_one(key: jax.Array) -> None:
    """Swaps happen exactly where a uniform number lies below the ratio of joint densities, after and before."""
    posterior, path = Gaussian(), load_ladder([0.0, 0.4, 1.1, 2.0])
    params = jax.vmap(posterior.sample_prior)(jax.random.split(key, 4))

    def density(state: int, rung: int) -> float:
        at = jax.tree.map(lambda leaf: leaf[state], params)
        return float(log_density(posterior, at, jax.tree.map(lambda control: control[rung], path)))

    tried = 0
    for parity in (0, 1):
        partner = np.asarray(partners(4, jnp.asarray(parity)))
        gain = jnp.array([[density(k, int(partner[k])) - density(k, k) for k in range(4)]])
        for k in range(parity, 3, 2):
            order = [0, 1, 2, 3]
            order[k], order[k + 1] = k + 1, k
            before, after = (sum(density(o[i], i) for i in range(4)) for o in ([0, 1, 2, 3], order))
            ratio = np.exp(after - before)
            for factor in (0.999, 1.001):
                uniform = jnp.full((1, 3), min(1.0, ratio * factor))
                swapped = int(swap(uniform, gain, jnp.asarray(parity))[0, k]) == k + 1
                assert swapped == (ratio * factor < min(ratio, 1.0) or ratio > 1.0)
                tried += 1
    assert tried == 6


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.finfo(float).min])
def test_a_density_that_is_not_a_number_is_never_swapped(bad: float) -> None:
    gain = jnp.zeros((1, 4)).at[0, 1].set(bad)
    source = swap(jnp.full((1, 3), 1e-300), gain, jnp.asarray(0))
    assert source[0].tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize(("rungs", "scans"), [(4, 64), (5, 128), (2, 16)])
def test_round_trips_when_every_swap_is_accepted(rungs: int, scans: int) -> None:
    """Deterministic: sum over replicas i < N of floor(max(scans - i, 0) / 2N)."""
    replica_at = np.arange(rungs)[None]
    history = [replica_at]
    for number in range(scans):
        source = swap(jnp.full((1, rungs - 1), 0.5), jnp.zeros((1, rungs)), jnp.asarray(number % 2))
        replica_at = np.take_along_axis(replica_at, np.asarray(source), axis=1)
        history.append(replica_at)
    rung = np.argsort(np.stack(history, axis=1), axis=-1)
    expected = sum(max(scans - i, 0) // (2 * rungs) for i in range(rungs))
    assert _count_returns(rung == 0, rung == rungs - 1) == expected


METHODS = [*((name, False) for name in EXPLORERS), ("hmc", True), ("mala", True), ("langevin", True)]


class Exact(NamedTuple):
    """Replicas drawn exactly at five rungs, of which two have a field, and the last a window; and their laws."""

    ladder: Controls
    state: Replicas
    deviation: np.ndarray
    means: list[Any]
    """Laws of the mean of three coordinates."""


@pytest.fixture
def exact(key: jax.Array) -> Exact:
    posterior, chains, low = Gaussian(), 4000, 0.9
    loads, fields = np.array([0.0, 0.15, 0.5, 1.2, 1.2]), np.array([0.0, 0.0, 0.3, -0.5, -0.5])
    lowest = np.array([-np.inf, -np.inf, -np.inf, -np.inf, low])
    ladder = Controls(*(jnp.asarray(c) for c in (np.ones(5), loads, fields, lowest, np.full(5, np.inf))))
    precision = 1 + loads / posterior.width**2
    mean = (loads * posterior.center / posterior.width**2 + fields) / precision
    deviation = 1 / np.sqrt(precision)
    # In the window: the mean of three coordinates is a truncated normal, and the deviations from it are free.
    window = stats.truncnorm((low - mean[4]) / deviation[4] * np.sqrt(3), np.inf, mean[4], deviation[4] / np.sqrt(3))
    x = np.array(mean[:, None] + deviation[:, None] * jax.random.normal(key, (chains, 5, 3)))
    x[:, 4] += (window.rvs(chains, random_state=np.random.default_rng(4)) - x[:, 4].mean(-1))[:, None]
    laws = [stats.norm(mean[k], deviation[k] / np.sqrt(3)) for k in range(4)] + [window]
    return Exact(ladder, replicas(jnp.asarray(x)), deviation, laws)


@pytest.mark.parametrize(("sampler", "single"), METHODS)
def test_one_scan_leaves_exact_draws_exact(key: jax.Array, exact: Exact, sampler: str, single: bool) -> None:
    """Forward simulation: replicas drawn exactly at every rung stay exact through exploration and swaps.

    Kolmogorov-Smirnov on two scalars at each of five rungs; false alarms 1e-3 in all seven runs together (Bonferroni).
    """
    assert is_prior(exact.ladder).tolist() == [True, False, False, False, False]
    state, method = exact.state, Method(EXPLORERS[sampler].kernel, 5, single)
    chains = len(state.chain)
    steps, swapped = jnp.broadcast_to(jnp.array([0.5, 0.45, 0.4, 0.3, 0.3]), (chains, 5)), 0
    for number in range(3):
        state, record = one_scan(Gaussian(), exact.ladder, method, (0,), key, jnp.asarray(number), state, steps)
        swapped += int(np.sum(np.asarray(record.replica_at) != np.arange(5)))
    assert swapped > chains
    draws = np.asarray(by_rung(state)["x"])
    if not single:
        assert not np.array_equal(draws, draws.astype(np.float32))
    for rung in range(5):
        values = [stats.kstest(draws[:, rung].mean(1), exact.means[rung].cdf)]
        contrast = (draws[:, rung, 0] - draws[:, rung, 1]) / np.sqrt(2)
        values.append(stats.kstest(contrast, stats.norm(0, exact.deviation[rung]).cdf))
        assert min(value.pvalue for value in values) > 1e-3 / 70


@pytest.mark.parametrize(("sampler", "single"), METHODS)
def test_each_explorer_tells_its_last_energy(key: jax.Array, exact: Exact, sampler: str, single: bool) -> None:
    """From exact draws with steps so small that nearly all are accepted, energy + log_density is the kinetic energy.

    At the rungs without a window, where nothing was swapped: the swap does not know the momentum. Kolmogorov-Smirnov
    against half a chi-square of three degrees of freedom; false alarm 1e-3 in all seven.
    """
    method, chains = Method(EXPLORERS[sampler].kernel, 5, single), len(exact.state.chain)
    sizes = jnp.full((chains, 5), 0.02, float)
    _, record = one_scan(Gaussian(), exact.ladder, method, (0,), key, jnp.asarray(1), exact.state, sizes)
    assert record.energy.dtype == jnp.float64
    assert np.isnan(record.energy[:, 0]).all()
    assert np.all(record.acceptance[:, 1:4].mean(axis=0) > 0.999)
    # At an odd scan the first rung has no partner.
    replica_at, rung = np.asarray(record.replica_at), np.arange(5)
    np.testing.assert_array_equal(replica_at[:, 0], 0)
    assert np.all((replica_at == rung) | (replica_at == np.asarray(partners(5, jnp.asarray(1)))))
    stayed = (replica_at == rung) & (rung > 0) & (rung < 4)
    kinetic = np.asarray(record.energy + record.log_density)[stayed]
    assert len(kinetic) > chains
    assert stats.kstest(kinetic, stats.gamma(1.5).cdf).pvalue > 1e-3 / 7


def test_what_is_recorded_belongs_to_the_recorded_state(key: jax.Array) -> None:
    posterior, path = Gaussian(), load_ladder([0.0, 0.2, 0.6])
    state = replicas(jax.vmap(jax.vmap(posterior.sample_prior))(jax.random.split(key, (5, 3)))["x"])
    method = Method(EXPLORERS["hmc"].kernel, 4, False)
    for number in range(4):
        before = state
        state, record = one_scan(posterior, path, method, (0,), key, jnp.asarray(number), state, jnp.full((5, 3), 0.3))
        at_rungs = jax.vmap(lambda params, controls: log_density(posterior, params, controls))
        density = jax.vmap(at_rungs, (0, None))(by_rung(state), path)
        np.testing.assert_allclose(record.log_density, density, rtol=1e-12)
        order = jax.vmap(jax.vmap(posterior.order_parameters))(by_rung(state))
        np.testing.assert_array_equal(record.order_parameters.first, order.first)
        assert not np.array_equal(before.params["x"], state.params["x"])
