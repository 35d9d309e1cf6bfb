"""The row law against plain Monte Carlo, exact identities and itself at higher resolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_attn.theory.row_law import RowLaw, RowMoments

POINTS = [(0.5, -0.5), (5.0, -4.0), (12.0, -9.0), (-6.0, -8.0)]


def moments(length: int, scale: float, t: float, u: float, resolution: float = 1.0) -> RowMoments:
    return jax.tree.map(np.asarray, jax.jit(RowLaw(length, scale, resolution).moments)(jnp.asarray(t), jnp.asarray(u)))


@pytest.mark.parametrize(("length", "scale"), [(3, 1.0), (16, 1.0), (16, 0.5), (16, 1.6), (64, 1.0)])
def test_against_plain_sampling(length: int, scale: float, random_numbers: np.random.Generator) -> None:
    """Ratios of means over prior rows; a z-test with 12 comparisons per case at 4.5 standard errors (1e-4)."""
    draws = 200_000 if length < 64 else 60_000
    weights = np.exp(scale * random_numbers.standard_normal((draws, length)))
    weights /= weights.sum(1, keepdims=True)
    x, y = weights[:, 0], (weights**2).sum(1)
    for t, u in POINTS:
        boost = np.exp(t * x + u * y)
        exact = moments(length, scale, t, u)
        error = boost.std() / boost.mean() / np.sqrt(draws)
        assert abs(np.log(boost.mean()) - exact.cumulant) < 4.5 * error + 3e-4
        for sampled, value in zip((x, y), exact.mean, strict=True):
            mean = np.average(sampled, weights=boost)
            spread = np.sqrt(np.mean((boost * (sampled - mean)) ** 2) / draws) / boost.mean()
            assert abs(mean - value) < 4.5 * spread + 1e-4


@pytest.mark.parametrize("length", [3, 5, 16, 64, 256, 1024, 16384])
def test_the_prior_is_normalised_and_symmetric_in_the_keys(length: int) -> None:
    """Without fields Lambda = 0 and the mean weight of a key is 1/L."""
    at_zero = moments(length, 1.0, 0.0, 0.0)
    tolerance = 1e-3 if length < 10 else 5e-6
    assert abs(float(at_zero.cumulant)) < tolerance
    assert float(at_zero.mean[0]) == pytest.approx(1 / length, rel=tolerance)


@pytest.mark.parametrize(("t", "u"), [(8.0, -8.0), (25.0, -15.0), (60.0, -40.0)])
@pytest.mark.parametrize("length", [16, 256])
def test_derivatives_agree_with_differences(length: int, t: float, u: float) -> None:
    here = moments(length, 1.0, t, u)
    for axis, (dt, du) in enumerate([(0.03, 0.0), (0.0, 0.03)]):
        above, below = moments(length, 1.0, t + dt, u + du), moments(length, 1.0, t - dt, u - du)
        assert (above.cumulant - below.cumulant) / 0.06 == pytest.approx(here.mean[axis], rel=2e-3)
        np.testing.assert_allclose((above.mean - below.mean) / 0.06, here.covariance[axis], rtol=2e-3)


@pytest.mark.parametrize("length", [16, 64, 1024])
@pytest.mark.parametrize(("t", "u"), [(10.0, -8.0), (25.0, -15.0), (60.0, -40.0), (-15.0, -20.0)])
def test_refining_every_grid_changes_little(length: int, t: float, u: float) -> None:
    normal, fine = moments(length, 1.0, t, u), moments(length, 1.0, t, u, resolution=1.6)
    assert abs(normal.cumulant - fine.cumulant) < 2e-6
    np.testing.assert_allclose(normal.mean, fine.mean, rtol=2e-5)
