"""Densities that are not finite: rejected and counted, never swapped in, and no trap for anybody else."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian import Coordinates, Gaussian
from scipy import stats

from bayes_attn import InvalidInput, Schedule, Starts, load_ladder, sample
from bayes_attn.diagnostics import estimate
from bayes_attn.sampling import Advice
from bayes_attn.sampling.explorers import EXPLORERS


class Holed(Gaussian):
    """A Gaussian whose log-likelihood takes the value `hole` wherever the first coordinate is above 1.

    Where the load is positive its posterior is therefore cut off there.
    """

    hole: jax.Array = eqx.field(converter=jnp.asarray, default=np.nan)

    def log_likelihood(self, params: dict[str, jax.Array], load: jax.Array) -> jax.Array:
        value = super().log_likelihood(params, load)
        return jnp.where((params["x"][0] > 1.0) & (load > 0), self.hole, value)


@pytest.mark.parametrize(
    ("sampler", "hole"), [*((name, np.nan) for name in EXPLORERS), ("nuts", np.inf), ("hmc", np.inf), ("hmc", -np.inf)]
)
def test_holes_are_never_entered_and_the_rest_is_sampled_right(sampler: str, hole: float) -> None:
    """Mean of the cut-off coordinate at 4.5 standard errors; NaN and +inf are counted, -inf is an edge."""
    posterior, loads = Holed(hole=hole), np.array([0.0, 0.1, 0.3])
    samples = sample(
        posterior, load_ladder(loads), Starts((posterior.sample_prior,), 4), Schedule(300, 60, 20), 3, sampler=sampler
    )
    first = samples.order_parameters.first
    assert np.all(first[:, :, 1:] <= 1.0)
    assert np.all(np.isfinite(samples.log_density))
    mean, deviation = posterior.exact(loads)
    for rung in (1, 2):
        law = stats.truncnorm(-np.inf, (1.0 - mean[rung]) / deviation[rung], mean[rung], deviation[rung])
        found = estimate(first[:, :, rung])
        assert abs(found.mean - law.mean()) < 4.5 * found.error
        assert found.error < 0.03
    # Without data there is no hole, and there the replicas that come from the others are whole again.
    assert np.mean(first[:, :, 0] > 1.0) == pytest.approx(stats.norm.sf(1.0), abs=0.02)
    assert samples.non_finite.any() == (not np.isneginf(hole))
    # A proposal in the hole has an infinite energy, which for NUTS is never that of the state moved to.
    assert np.isposinf(samples.energy[:, :, 1:]).any() == (sampler != "nuts")
    assert not np.isnan(samples.energy[:, :, 1:]).any()
    assert not np.isneginf(samples.energy[:, :, 1:]).any()
    assert (Advice.NON_FINITE in samples.advice()) == (not np.isneginf(hole))


def test_one_bad_replica_does_not_freeze_the_others() -> None:
    """A rung whose proposals are all NaN rejects them; the others go on as if it were not there."""

    class Trapped(Gaussian):
        def log_likelihood(self, params: dict[str, jax.Array], load: jax.Array) -> jax.Array:
            value = super().log_likelihood(params, load)
            outside = jnp.any(params["x"] != 0.3)
            return jnp.where((load > 0.5) & outside, jnp.nan, value)

    posterior, loads = Trapped(), np.array([0.0, 0.1, 0.6])
    free = jax.vmap(jax.vmap(posterior.sample_prior))(jax.random.split(jax.random.key(0), (4, 3)))
    initial = {"x": free["x"].at[:, 2].set(0.3)}
    samples = sample(posterior, load_ladder(loads), initial, Schedule(200, 60, 20), 3)
    assert samples.non_finite[:, :, 2].any()
    assert np.all(samples.order_parameters.first[:, :, 2] == 0.3)
    mean, _ = posterior.exact(loads)
    found = estimate(samples.order_parameters.first[:, :, 1])
    assert abs(found.mean - mean[1]) < 4.5 * found.error
    assert np.ptp(samples.order_parameters.first[:, :, 1]) > 1.0


def test_starts_outside_the_support_are_drawn_again_and_then_refused() -> None:
    posterior = Holed()
    schedule, ladder = Schedule(10, 1, 10), load_ladder([0.0, 0.1])
    # One prior draw in six lies in the hole; two hundred replicas would hardly all miss it.
    samples = sample(posterior, ladder, Starts((posterior.sample_prior,), 100), schedule, 0)
    assert np.all(np.isfinite(samples.log_density))

    def hopeless(key: jax.Array) -> dict[str, jax.Array]:
        return {"x": 2.0 + jnp.abs(posterior.sample_prior(key)["x"])}

    # The other kind is tried where the first has no luck.
    sample(posterior, ladder, Starts((hopeless, posterior.sample_prior), 4), schedule, 0)
    with pytest.raises(InvalidInput, match="`initial` must .* got none in 20 draws by hopeless at chain 0, rung 1"):
        sample(posterior, ladder, Starts((hopeless,), 4), schedule, 0)
    with pytest.raises(InvalidInput, match="`chains` must be an integer of at least 1, got 0"):
        sample(posterior, ladder, Starts((hopeless,), 0), schedule, 0)


def test_a_likelihood_that_is_infinite_without_data_is_silent_at_inverse_temperature_zero() -> None:
    class Infinite(Gaussian):
        def log_likelihood(self, params: dict[str, jax.Array], load: jax.Array) -> jax.Array:
            return jnp.where(jnp.all(params["x"] > 0), super().log_likelihood(params, load), -jnp.inf)

        def order_parameters(self, params: dict[str, jax.Array]) -> Coordinates:
            return super().order_parameters(params)

    from bayes_attn.sampling import temperature_path

    posterior = Infinite()

    def positive(key: jax.Array) -> dict[str, jax.Array]:
        return {"x": jnp.abs(posterior.sample_prior(key)["x"])}

    samples = sample(posterior, temperature_path(0.2), Starts((positive,), 4), Schedule(200, 50, 20), 1, rungs=4)
    first = samples.order_parameters.first
    assert np.mean(first[:, :, 0] < 0) == pytest.approx(0.5, abs=0.03)
    assert np.all(first[:, :, 1:] > 0)
    assert not samples.non_finite.any()
