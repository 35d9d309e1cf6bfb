import numpy as np
import pytest
import xarray as xr
from gaussian import Gaussian
from scipy.signal import lfilter

from bayes_attn import InvalidInput
from bayes_attn.diagnostics import (
    LEAST_VISITS,
    PhaseRow,
    bfmi,
    estimate,
    phase_diagnostics,
    rank_plot,
    to_datatree,
)


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


def test_datatree_keeps_everything_and_survives_a_file(tmp_path) -> None:
    from sampling.test_run import LOADS, start

    from bayes_attn import Schedule, load_ladder, sample

    posterior = Gaussian()
    samples = sample(posterior, load_ladder(LOADS), start(posterior, 2, 4), Schedule(20, 6, 10), seed=3)
    # One leaf, named as the caller says.
    one = type(samples)(**{**samples.__dict__, "params": samples.params["x"]})
    energy = np.arange(samples.log_density.size, dtype=float).reshape(samples.log_density.shape)
    object.__setattr__(one, "energy", energy)
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
        np.testing.assert_array_equal(back["sample_stats"]["energy"], energy[:, 9::10])
        assert back["sample_stats"]["energy"].attrs["long_name"] == "Hamiltonian energy of the proposal (nats)"
        # The thinned order parameters belong to the thinned parameters.
        np.testing.assert_allclose(back["posterior"]["mean_coordinate"], one.params.mean(-1), rtol=1e-5, atol=1e-6)


def two_phases(generator: np.random.Generator, in_copy: np.ndarray) -> dict[str, np.ndarray]:
    """A copy mass near 0.1 or 0.9, and a log-density that depends on it."""
    copy_mass = np.where(in_copy, 0.9, 0.1) + 0.02 * autoregressive(generator, *in_copy.shape, 0.5)
    return {"copy_mass": copy_mass, "lp": 10 * copy_mass + generator.normal(size=in_copy.shape)}


def by_phase(rows: tuple[PhaseRow, ...]) -> dict[tuple[str, str], PhaseRow]:
    return {(row.phase, row.scalar): row for row in rows}


def test_stuck_chains_agree_within_the_phases_alone(random_numbers: np.random.Generator) -> None:
    in_copy = np.broadcast_to(np.array([[False], [True], [False], [True]]), (4, 2000))
    values = two_phases(random_numbers, in_copy)
    rows = by_phase(phase_diagnostics(values, values["copy_mass"], 0.5))
    assert len(rows) == 6
    for scalar in values:
        overall, disordered, copy = (rows[phase, scalar] for phase in ("overall", "disordered", "copy"))
        assert (overall.scans, disordered.scans, copy.scans) == (8000, 4000, 4000)
        assert overall.estimate.rhat > 1.5
        assert overall.estimate.ess < 20
        assert disordered.estimate.rhat < 1.02
        assert copy.estimate.rhat < 1.02
        assert copy.estimate.ess > 1000
    assert rows["copy", "copy_mass"].estimate.mean == pytest.approx(0.9, abs=0.005)


def test_chains_that_switch_agree_everywhere(random_numbers: np.random.Generator) -> None:
    in_copy = np.cumsum(random_numbers.random((4, 4000)) < 0.05, axis=1) % 2 == 1
    values = two_phases(random_numbers, in_copy)
    rows = phase_diagnostics(values, values["copy_mass"], 0.5)
    assert all(row.estimate is not None and row.estimate.rhat < 1.05 for row in rows)
    found = by_phase(rows)
    assert found["disordered", "lp"].scans + found["copy", "lp"].scans == found["overall", "lp"].scans == 16_000


def test_a_phase_that_is_hardly_visited_has_no_estimate(random_numbers: np.random.Generator) -> None:
    """Too few scans in all chains but one; a second chain with enough of them, and both are compared."""
    in_copy = np.zeros((4, 1000), dtype=bool)
    in_copy[0, :400], in_copy[1, : LEAST_VISITS - 1] = True, True
    values = two_phases(random_numbers, in_copy)
    row = by_phase(phase_diagnostics(values, values["copy_mass"], 0.5))["copy", "lp"]
    assert (row.scans, row.estimate) == (449, None)
    in_copy[2, :100] = True
    values = two_phases(random_numbers, in_copy)
    row = by_phase(phase_diagnostics(values, values["copy_mass"], 0.5))["copy", "lp"]
    assert row.scans == 549
    assert row.estimate == estimate(np.stack([values["lp"][0, :100], values["lp"][2, :100]]))


def test_phase_diagnostics_refuse_another_shape(random_numbers: np.random.Generator) -> None:
    values = random_numbers.normal(size=(4, 100))
    with pytest.raises((InvalidInput, TypeError)):
        phase_diagnostics({"lp": values[:, :50]}, values, 0.5)


def test_energy_fraction_of_known_series(random_numbers: np.random.Generator) -> None:
    """E (e' - e)^2 / var e = 2 (1 - memory) for an AR(1)."""
    for memory in (0.0, 0.9):
        expected = 2 * (1 - memory)
        found = bfmi(100 + 5 * autoregressive(random_numbers, 4, 20_000, memory))
        np.testing.assert_allclose(found, expected, rtol=0.1)


def test_missing_energies_have_no_fraction(random_numbers: np.random.Generator) -> None:
    energy = random_numbers.normal(size=(3, 500))
    energy[1], energy[2] = np.nan, 1.0
    np.testing.assert_array_equal(np.isnan(bfmi(energy)), [False, True, True])
    assert np.isnan(bfmi(np.full((2, 10), np.nan))).all()


def test_rank_plot_shows_every_scalar_and_chain(random_numbers: np.random.Generator) -> None:
    import matplotlib.pyplot as plt

    moved = autoregressive(random_numbers, 3, 2000, 0.5) + np.array([0.0, 0.0, 3.0])[:, None]
    values = {
        "copy_mass": moved,
        "lp": autoregressive(random_numbers, 3, 2000, 0.5),
        "uniform_overlap": np.ones((3, 2000)),
    }
    figure = rank_plot(values, "rung 2")
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert set(panels) == {"copy_mass", "lp"}
    assert figure.get_suptitle() == "rung 2"
    # A chain that sits apart strays from the uniform distribution of its ranks, one that does not stays near.
    astray = {name: max(np.abs(line.get_ydata()).max() for line in axes.get_lines()) for name, axes in panels.items()}
    assert astray["copy_mass"] > 0.4
    assert astray["lp"] < 0.15
    for axes in panels.values():
        assert len({line.get_color() for line in axes.get_lines()}) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0", "1", "2"]
    plt.close(figure)


def test_rank_plot_refuses_constants() -> None:
    with pytest.raises(InvalidInput, match="rank_plot: `values` must have a scalar that varies"):
        rank_plot({"lp": np.ones((2, 100))})
