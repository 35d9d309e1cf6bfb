"""Samplers of other libraries behind the same call, against closed forms and against each other."""

import jax
import numpy as np
import pytest
from gaussian import Gaussian

from bayes_attn import InvalidInput, Population, Schedule, Starts, load_ladder, sample
from bayes_attn.diagnostics import estimate

LOADS = np.array([0.0, 0.4, 1.0])


@pytest.mark.parametrize("sampler", ["numpyro-nuts", "blackjax-nuts", "tempered-smc"])
def test_each_reaches_the_exact_moments(sampler: str) -> None:
    """Mean and second moment at three rungs, at 4.5 standard errors (false alarm 4e-5 per sampler)."""
    posterior = Gaussian()
    told = []
    samples = sample(
        posterior, load_ladder(LOADS), Starts((posterior.sample_prior,), 4), Schedule(300, 50, 20), 3,
        lambda done, total: told.append(done / total), sampler=sampler,
    )  # fmt: skip
    assert told == [1 / 3, 2 / 3, 1.0]
    assert samples.sampler == sampler
    assert samples.params["x"].shape == (4, 50, 3, 3)
    assert np.isnan(samples.swap_rate).all()
    assert samples.round_trips() == 0
    mean, deviation = posterior.exact(LOADS)
    for rung in range(3):
        values = samples.order_parameters.first[:, :, rung]
        if sampler == "tempered-smc":  # a population's particles come in no order; its mean is one number
            first, second = ((v.mean(), v.mean(1).std(ddof=1) / 2 + 0.015) for v in (values, values**2))
        else:
            first, second = ((e.mean, e.error) for e in (estimate(values), estimate(values**2)))
        assert abs(first[0] - mean[rung]) < 4.5 * first[1]
        assert abs(second[0] - mean[rung] ** 2 - deviation[rung] ** 2) < 4.5 * second[1]
    kinetic = samples.energy + samples.log_density
    if sampler == "tempered-smc":
        assert np.isnan(samples.energy).all()
        # Four independent estimates; each within 0.1 of log Z.
        np.testing.assert_allclose(
            samples.log_evidence, np.broadcast_to(posterior.log_evidence(LOADS), (4, 3)), atol=0.1
        )
        return
    # Both energies are of the state moved to, whose momentum has three coordinates: 4.5 standard errors at three rungs.
    assert kinetic.min() > -1e-9
    for rung in range(3):
        found = estimate(kinetic[:, :, rung])
        assert abs(found.mean - 1.5) < 4.5 * found.error
        assert found.error < 0.05


def test_oracles_keep_no_files(tmp_path) -> None:
    posterior = Gaussian()
    with pytest.raises(InvalidInput, match="`folder` is not for the sampler numpyro-nuts"):
        sample(
            posterior, load_ladder(LOADS), Starts((posterior.sample_prior,), 2), Schedule(10, 1, 10), 0,
            sampler="numpyro-nuts", folder=tmp_path,
        )  # fmt: skip


@pytest.mark.slow
def test_samplers_agree_in_each_phase(softmax_16: Population) -> None:
    """Mean m and q at one load in each phase: 8 differences at 4.5 combined standard errors (false alarm 6e-5)."""
    loads = [1.6, 3.4]
    keys = jax.random.split(jax.random.key(8), (4, 2))
    cold, hot = (jax.vmap(jax.vmap(draw))(keys) for draw in (softmax_16.sample_prior, softmax_16.sample_copy))
    starts = jax.numpy.stack([cold[:, 0], hot[:, 1]], 1)
    found = {}
    for sampler in ("hmc", "nuts", "numpyro-nuts"):
        schedule = Schedule(400, 20, 20) if "nuts" in sampler else Schedule(500, 80, 20)
        samples = sample(softmax_16, load_ladder(loads), starts, schedule, 2, sampler=sampler)
        found[sampler] = samples.order_parameters
    # The swaps of replica exchange mix the two rungs; those that run alone stay in the phase they began in.
    for rung in range(2):
        for name in ("copy_mass", "participation"):
            ours = {sampler: estimate(np.asarray(getattr(order, name))[:, :, rung]) for sampler, order in found.items()}
            for sampler, theirs in ours.items():
                error = np.hypot(theirs.error, ours["hmc"].error)
                assert sampler == "hmc" or abs(theirs.mean - ours["hmc"].mean) < 4.5 * error, (rung, name, sampler)


def test_unknown_samplers_are_refused() -> None:
    posterior = Gaussian()
    with pytest.raises(
        InvalidInput, match="`sampler` must be one of hmc, nuts, mala, langevin, numpyro-nuts, .* got 'x'"
    ):
        sample(posterior, load_ladder(LOADS), Starts((posterior.sample_prior,), 2), Schedule(), 0, sampler="x")
    for sampler in ("nuts", "tempered-smc"):
        with pytest.raises(InvalidInput, match="`precision` must be double for the sampler nuts"):
            sample(
                posterior, load_ladder(LOADS), Starts((posterior.sample_prior,), 2), Schedule(), 0,
                sampler=sampler, precision="mixed",
            )  # fmt: skip
