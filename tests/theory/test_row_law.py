"""The row law against plain Monte Carlo, a closed form, exact identities and itself at higher resolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from bayes_attn.theory.row_law import RowLaw, RowMoments, row_law

POINTS = [(0.5, -0.5), (5.0, -4.0), (12.0, -9.0), (-6.0, -8.0)]


@jax.jit
def _moments(law: RowLaw, t: jax.Array, u: jax.Array) -> RowMoments:
    return law.moments(t, u)


def moments(law: RowLaw, t: float, u: float) -> RowMoments:
    return jax.tree.map(np.asarray, _moments(law, jnp.asarray(float(t)), jnp.asarray(float(u))))


@pytest.mark.parametrize(("length", "scale"), [(3, 1.0), (16, 1.0), (16, 0.5), (16, 2.5), (64, 1.0)])
def test_against_plain_sampling(length: int, scale: float, random_numbers: np.random.Generator) -> None:
    """Ratios of means over prior rows; a z-test with 12 comparisons per case at 4.5 standard errors (1e-4)."""
    draws = 200_000 if length < 64 else 60_000
    weights = np.exp(scale * random_numbers.standard_normal((draws, length)))
    weights /= weights.sum(1, keepdims=True)
    x, y = weights[:, 0], (weights**2).sum(1)
    for t, u in POINTS:
        boost = np.exp(t * x + u * y)
        exact = moments(row_law(length, scale), t, u)
        error = boost.std() / boost.mean() / np.sqrt(draws)
        assert abs(np.log(boost.mean()) - exact.cumulant) < 4.5 * error + 1e-5
        for sampled, value in zip((x, y), exact.mean, strict=True):
            mean = np.average(sampled, weights=boost)
            spread = np.sqrt(np.mean((boost * (sampled - mean)) ** 2) / draws) / boost.mean()
            assert abs(mean - value) < 4.5 * spread + 1e-5


@pytest.mark.parametrize(("t", "u"), [(0.0, 0.0), (3.0, -2.0), (60.0, -50.0), (900.0, -700.0)])
def test_two_keys_have_a_closed_form(t: float, u: float) -> None:
    """x = sigmoid(d) with d normal: the causal task's first row, and its only kind at length 2."""

    def boost(d: float) -> float:
        x = 1 / (1 + np.exp(-d))
        return np.exp(t * (x - 1) + u * (x**2 + (1 - x) ** 2 - 1)) * stats.norm(scale=0.8 * np.sqrt(2)).pdf(d)

    exact = t + u + np.log(integrate.quad(boost, -12, 12, epsabs=0, epsrel=1e-11, limit=400)[0])
    assert float(moments(row_law(2, 0.8), t, u).cumulant) == pytest.approx(exact, abs=1e-7)


def test_three_keys_against_an_integral_over_their_logits() -> None:
    """A triangle of keys by adaptive quadrature, which knows nothing of merging groups."""
    t, u = 7.0, -5.0

    def boost(a: float, b: float) -> float:
        p = np.exp([0.0, a, b])
        p /= p.sum()
        # Differences of three standard normals.
        return np.exp(t * p[0] + u * (p**2).sum() - (a**2 + b**2 - a * b) / 3) / (2 * np.pi * np.sqrt(3))

    nodes = np.linspace(-14, 14, 561)
    values = [[boost(a, b) for b in nodes] for a in nodes]
    exact = np.log(np.sum(values) * (nodes[1] - nodes[0]) ** 2)
    assert float(moments(row_law(3, 1.0), t, u).cumulant) == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize(("length", "scale"), [(3, 0.1), (3, 3.0), (16, 1.0), (16, 2.5), (256, 0.1), (256, 1.0)])
def test_the_prior_is_normalised_and_symmetric_in_the_keys(length: int, scale: float) -> None:
    """Without fields Lambda = 0 and the mean weight of a key is 1/L; broad logits cost three digits."""
    at_zero, tolerance = moments(row_law(length, scale), 0.0, 0.0), 3e-4 if scale > 1 else 3e-7
    assert abs(float(at_zero.cumulant)) < tolerance
    assert float(at_zero.mean[0]) == pytest.approx(1 / length, rel=tolerance)


def test_no_tilt_by_participation_favours_a_key() -> None:
    """At t = 0 the keys are alike, whatever u: the mean weight stays 1/L."""
    for u in (-3.0, -200.0, -5e4):
        assert float(moments(row_law(24, 1.0), 0.0, u).mean[0]) == pytest.approx(1 / 24, rel=1e-5)


@pytest.mark.parametrize(("t", "u"), [(8.0, -8.0), (60.0, -40.0), (3000.0, -2000.0)])
@pytest.mark.parametrize("length", [16, 1024])
def test_derivatives_agree_with_differences(length: int, t: float, u: float) -> None:
    law = row_law(length, 1.0)
    here, step = moments(law, t, u), 3e-4 * t
    for axis, (dt, du) in enumerate([(step, 0.0), (0.0, step)]):
        above, below = moments(law, t + dt, u + du), moments(law, t - dt, u - du)
        assert (above.cumulant - below.cumulant) / (2 * step) == pytest.approx(here.mean[axis], rel=2e-4)
        np.testing.assert_allclose((above.mean - below.mean) / (2 * step), here.covariance[axis], rtol=2e-3)


@pytest.mark.parametrize("length", [16, 256])
def test_refining_every_grid_changes_little(length: int) -> None:
    for t, u in [(10.0, -8.0), (60.0, -40.0), (-15.0, -20.0), (3000.0, -2000.0)]:
        normal, fine = moments(row_law(length, 1.0), t, u), moments(row_law(length, 1.0, 1.3), t, u)
        # The effective action has L rows: an error of 1e-7 L in Lambda is 1e-7 L^2 kT, of barriers that grow as fast.
        assert abs(normal.cumulant - fine.cumulant) < 1e-7 * length
        np.testing.assert_allclose(normal.mean, fine.mean, rtol=5e-5)


def test_a_causal_law_is_the_mean_over_its_rows() -> None:
    rows = [moments(row_law(length, 1.0), 6.0, -5.0) for length in range(2, 7)]
    causal = moments(row_law(6, 1.0, causal=True), 6.0, -5.0)
    for name in ("cumulant", "mean", "covariance"):
        np.testing.assert_allclose(getattr(causal, name), np.mean([getattr(row, name) for row in rows], axis=0), 1e-9)


def test_rows_left_out_of_a_long_causal_task_are_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    every = moments(row_law(16, 1.0, causal=True), 6.0, -5.0)
    monkeypatch.setattr("bayes_attn.theory.row_law.MOST_ROWS", 12)
    # Past the cache, which other tests share.
    some = row_law.__wrapped__(16, 1.0, causal=True)
    assert len(some.others) < 12
    assert float(moments(some, 6.0, -5.0).cumulant) == pytest.approx(float(every.cumulant), abs=1e-5)


def test_beyond_the_tables_there_is_no_number() -> None:
    assert np.isnan(moments(row_law(16, 1.0), 0.0, -1.1e6).cumulant)
    assert np.isfinite(moments(row_law(16, 1.0), 0.0, -0.9e6).cumulant)
