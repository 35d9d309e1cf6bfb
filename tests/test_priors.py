import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_attn import HeadProduct, IidLogits, InvalidInput, RelativeBias


def test_density_is_normalised_and_the_draw_is_exact(key: jax.Array) -> None:
    prior = IidLogits(4, 0.7)
    draws = np.asarray(jax.vmap(prior.sample)(jax.random.split(key, 500)))
    # One test at a false-alarm rate of 1e-4.
    assert stats.kstest(draws.ravel(), stats.norm(scale=0.7).cdf).pvalue > 1e-4
    expected = stats.norm(scale=0.7).logpdf(draws[0]).sum()
    assert float(prior.log_density(jnp.asarray(draws[0]))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_scale_is_refused(scale: float) -> None:
    with pytest.raises(InvalidInput, match="IidLogits: `standard_deviation` must be a positive finite number"):
        IidLogits(4, scale)


def test_relative_bias_is_one_row_for_all(key: jax.Array) -> None:
    prior = RelativeBias(5, 0.8)
    biases = prior.sample(key)
    logits = np.asarray(prior.logits(biases))
    for i in range(5):
        for j in range(5):
            assert logits[i, j] == biases[(i - j) % 5]
    expected = stats.norm(scale=0.8).logpdf(np.asarray(biases)).sum()
    assert float(prior.log_density(biases)) == pytest.approx(expected, rel=1e-12)


def test_head_products_have_the_stated_variance_and_become_normal(key: jax.Array) -> None:
    """Var S_ij = standard_deviation^2; the excess kurtosis of a product of d terms is 6 / d."""
    for head_dimension, kurtosis in ((2, 3.0), (32, 6 / 32)):
        prior = HeadProduct(6, 0.8, head_dimension)
        logits = jax.vmap(lambda k, p=prior: p.logits(p.sample(k)))(jax.random.split(key, 20_000))
        # One logit per draw: the rest share queries and keys with it. At 4.5 standard errors.
        values = np.asarray(logits)[:, 1, 4]
        assert np.var(values) == pytest.approx(0.64, abs=4.5 * 0.64 * np.sqrt((2 + kurtosis) / 20_000))
        assert stats.kurtosis(values) == pytest.approx(kurtosis, abs=4.5 * (1.5 if head_dimension == 2 else 0.05))


@pytest.mark.parametrize("prior", [IidLogits(5, 1.0), RelativeBias(5, 1.0), HeadProduct(5, 1.0, 3)])
def test_a_planted_logit_is_where_it_should_be(prior: IidLogits | RelativeBias | HeadProduct, key: jax.Array) -> None:
    queries, sources = np.arange(5), (np.arange(5) - 1) % 5
    logits = np.asarray(prior.logits(prior.plant(prior.sample(key), queries, sources, 4.0)))
    np.testing.assert_allclose(logits[queries, sources], 4.0, rtol=1e-12)


@pytest.mark.parametrize("dimension", [0, -2, True])
def test_bad_head_dimension_is_refused(dimension: object) -> None:
    with pytest.raises(InvalidInput, match="HeadProduct: `head_dimension` must be an integer of at least 1"):
        HeadProduct(4, 1.0, dimension)
