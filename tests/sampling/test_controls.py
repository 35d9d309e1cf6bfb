import jax
import jax.numpy as jnp
import pytest
from gaussian import Gaussian

from bayes_attn import Controls, InvalidInput, load_ladder
from bayes_attn.sampling import log_density
from bayes_attn.sampling.controls import is_prior


def test_density_is_the_sum_of_its_terms(key: jax.Array) -> None:
    posterior = Gaussian()
    params = posterior.sample_prior(key)
    controls = Controls(jnp.asarray(0.7), jnp.asarray(1.3), jnp.asarray(-0.4))
    expected = posterior.log_prior(params) + 0.7 * posterior.log_likelihood(params, 1.3)
    expected += 3 * -0.4 * posterior.order_parameters(params).mean_coordinate
    assert float(log_density(posterior, params, controls)) == pytest.approx(float(expected), rel=1e-12)


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


@pytest.mark.parametrize(
    "loads", [[1.0], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0], [0.0, float("nan")], [0.0, float("inf")]]
)
def test_bad_ladders_are_refused(loads: list[float]) -> None:
    with pytest.raises(InvalidInput, match="`loads` must be two or more increasing numbers of at least 0"):
        load_ladder(loads)
