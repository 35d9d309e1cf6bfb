"""The recorded energies, against the law of the momentum: its square has as many degrees of freedom as the target."""

import numpy as np
from gaussian import Gaussian

from bayes_attn import Schedule, Starts, load_ladder, sample
from bayes_attn.diagnostics import estimate


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
