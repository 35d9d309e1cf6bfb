import numpy as np
import pytest
import xarray as xr
from gaussian import Gaussian
from scipy.signal import lfilter

from bayes_attn.diagnostics import estimate, to_datatree, two_peaks


def autoregressive(generator: np.random.Generator, chains: int, scans: int, memory: float) -> np.ndarray:
    """Unit-variance AR(1) series around 0, each from its stationary law."""
    noise = generator.normal(size=(chains, scans + 500)) * np.sqrt(1 - memory**2)
    return lfilter([1.0], [1.0, -memory], noise, axis=1)[:, 500:]


def test_errors_cover_a_known_mean(random_numbers: np.random.Generator) -> None:
    """68 % intervals of an AR(1) mean cover between 58 % and 88 % of 150 repeats.

    The error is the larger of two estimates, so it leans to caution; the binomial spread of the count is 4 %.
    """
    hits = 0
    for _ in range(150):
        found = estimate(3.0 + autoregressive(random_numbers, 4, 1500, 0.9))
        hits += abs(found.mean - 3.0) < found.error
    assert 0.58 < hits / 150 < 0.88


def test_effective_sample_size_of_a_known_series(random_numbers: np.random.Generator) -> None:
    found = estimate(autoregressive(random_numbers, 4, 20_000, 0.9))
    assert found.ess == pytest.approx(80_000 * 0.1 / 1.9, rel=0.15)
    assert found.rhat < 1.01


def test_chains_in_different_places_are_noticed(random_numbers: np.random.Generator) -> None:
    values = random_numbers.normal(size=(4, 500)) + np.array([0, 5, 0, 5])[:, None]
    found = estimate(values)
    assert found.rhat > 1.5
    assert found.error == pytest.approx(2.5 / np.sqrt(3), rel=0.05)


def test_a_constant_has_no_error() -> None:
    found = estimate(np.ones((4, 100)))
    assert (found.mean, found.error, found.ess, found.rhat) == (1.0, 0.0, 400.0, 1.0)


def test_depth_of_the_valley_of_a_mixture(random_numbers: np.random.Generator) -> None:
    """Two equal normals at distance 4: ln(peak / valley) in closed form."""
    values = random_numbers.normal(size=(4, 20_000)) + 4.0 * random_numbers.integers(0, 2, size=(4, 20_000))
    normal = lambda x: np.exp(-(x**2) / 2)  # noqa: E731
    exact = np.log((normal(0) + normal(4)) / (2 * normal(2)))
    depth, error = two_peaks(values)
    assert abs(depth - exact) < 0.1 + 3 * error
    assert error < 0.1


def test_one_peak_has_no_depth(random_numbers: np.random.Generator) -> None:
    depth, _ = two_peaks(random_numbers.gamma(9.0, size=(4, 20_000)))
    assert depth < 0.1


def test_datatree_keeps_everything_and_survives_a_file(tmp_path) -> None:
    from sampling.test_run import LOADS, start

    from bayes_attn import Schedule, load_ladder, sample

    posterior = Gaussian()
    samples = sample(posterior, load_ladder(LOADS), start(posterior, 2, 4), Schedule(20, 6, 10), seed=3)
    # One leaf, named as the caller says.
    one = type(samples)(**{**samples.__dict__, "params": samples.params["x"]})
    tree = to_datatree(one, "x", ["coordinate"], {"coordinate": np.arange(3)})
    tree.to_netcdf(tmp_path / "posterior.nc", engine="netcdf4")
    with xr.open_datatree(tmp_path / "posterior.nc", engine="netcdf4") as back:
        assert back["posterior"]["x"].dims == ("chain", "draw", "load", "coordinate")
        np.testing.assert_array_equal(back["posterior"]["x"], one.params)
        np.testing.assert_array_equal(back["posterior"]["load"], LOADS)
        assert back["sample_stats"]["lp"].dims == ("chain", "draw", "load")
        assert back["ladder"]["swap_acceptance"].dims == ("chain", "scan", "pair")
        np.testing.assert_array_equal(back["every_scan"]["lp"], samples.log_density)
        np.testing.assert_array_equal(back["sample_stats"]["lp"], samples.log_density[:, 9::10])
        # The thinned order parameters belong to the thinned parameters.
        np.testing.assert_allclose(back["posterior"]["mean_coordinate"], one.params.mean(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_a_heavy_tail_is_not_a_second_peak(memory: float, random_numbers: np.random.Generator) -> None:
    """Log-normal draws at ten rungs, twenty times: the verdict's rule, depth > max(0.1, 4 errors), never fires."""
    for _ in range(20):
        for _ in range(10):
            depth, error = two_peaks(np.exp(0.5 * autoregressive(random_numbers, 4, 4000, memory)))
            assert depth <= max(0.1, 4 * error)
