import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_attn import IidLogits, InvalidInput


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
