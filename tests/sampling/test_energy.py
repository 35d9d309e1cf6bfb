"""The recorded energies, against the law of the momentum: its square has as many degrees of freedom as the target."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian import Gaussian
from scipy import stats

from bayes_attn import Schedule, Starts, load_ladder, sample
from bayes_attn.diagnostics import estimate
from bayes_attn.sampling.controls import conditioned
from bayes_attn.sampling.explorers import EXPLORERS
from bayes_attn.sampling.tempering import Method, Replicas, Rungs, Scan, scan


def test_the_kinetic_energy_of_a_run_is_that_of_free_momenta() -> None:
    """One rung, no swap, HMC at its tuned step size, where one proposal in five is rejected.

    The energy is the proposal's. Where it was accepted, energy + log_density is the kinetic energy at the new state;
    where it was rejected, energy + log(acceptance) is the energy the trajectory began with. Either way the momentum of
    the state that the scan ends in is a standard normal in three dimensions: mean 3/2 and second moment 15/4 of the
    kinetic energy, at 4.5 standard errors (false alarm 1.4e-5).
    """
    posterior = Gaussian()
    samples = sample(posterior, load_ladder([1.0]), Starts((posterior.sample_prior,), 8), Schedule(300, 100, 20), 6)
    energy, density, acceptance = (
        values[:, 1:, 0] for values in (samples.energy, samples.log_density, samples.acceptance)
    )
    moved = density != samples.log_density[:, :-1, 0]
    assert 0.7 < moved.mean() < 0.9
    kinetic = np.where(moved, energy, energy + np.log(acceptance)) + density
    assert kinetic.min() > -1e-9
    for values, exact in ((kinetic, 1.5), (kinetic**2, 3.75)):
        found = estimate(values)
        assert abs(found.mean - exact) < 4.5 * found.error
        assert found.error < 0.02 * exact


@eqx.filter_jit
def one_scan(posterior: Gaussian, method: Method, key: jax.Array, state: Replicas, sizes: jax.Array) -> Scan:
    ladder = load_ladder([0.0, 1.0])
    rungs = Rungs(ladder, jnp.ones((2, posterior.dimension)), jnp.array([0]))
    # At an odd scan the only pair is not tried.
    return scan(conditioned(posterior, ladder), rungs, method, key, jnp.asarray(1), state, sizes)[1]


@pytest.mark.parametrize(
    ("sampler", "single"), [*((name, False) for name in EXPLORERS), ("hmc", True), ("mala", True), ("langevin", True)]
)
def test_each_explorer_tells_its_last_energy(key: jax.Array, sampler: str, single: bool) -> None:
    """From exact draws with steps so small that nearly all are accepted, energy + log_density is the kinetic energy.

    Kolmogorov-Smirnov against half a chi-square of three degrees of freedom; false alarm 1e-3 in all seven.
    """
    posterior, chains = Gaussian(), 4000
    mean, deviation = posterior.exact(np.array([1.0]))
    x = mean[0] + deviation[0] * jax.random.normal(key, (chains, 2, 3))
    numbers = jnp.broadcast_to(jnp.arange(2), (chains, 2))
    state = Replicas({"x": x}, numbers, jnp.arange(chains))
    method = Method(EXPLORERS[sampler].kernel, 5, single)
    record = one_scan(posterior, method, key, state, jnp.full((chains, 2), 0.02))
    assert record.energy.dtype == jnp.float64
    assert np.isnan(record.energy[:, 0]).all()
    assert record.acceptance[:, 1].mean() > 0.999
    kinetic = np.asarray(record.energy + record.log_density)[:, 1]
    assert stats.kstest(kinetic, stats.gamma(1.5).cdf).pvalue > 1e-3 / 7
    np.testing.assert_array_equal(record.replica_at, numbers)
