"""Regions, their borders, and the command that writes them."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from bayes_attn import CopyTask, InvalidInput, Population, phase_diagram, theory
from bayes_attn.cli import main


def build(length: int = 16, vocab: int = 16, logit_scale: float = 1.0) -> Population:
    return Population(CopyTask(length, vocab), logit_scale=logit_scale)


def test_regions_change_at_the_spinodals() -> None:
    loads = np.linspace(2.2, 3.0, 33)
    data = phase_diagram(build, {"load": loads, "field": np.array([-1.0, 0.0])})
    found = theory.transition(build())
    expected = np.where(loads < found.spinodal_low, 0, np.where(loads <= found.spinodal_high, 1, 2))
    np.testing.assert_array_equal(data["region"].sel(field=0.0), expected)
    assert float(data["critical_load"].sel(field=0.0)) == pytest.approx(found.critical_load)
    assert data["region"].dims == ("load", "field")


def test_a_crossover_has_no_coexistence() -> None:
    data = phase_diagram(build, {"length": np.array([8.0, 10.0]), "load": np.linspace(0.5, 5.0, 10)})
    assert not data["first_order"].any()
    assert set(np.unique(data["region"])) == {0, 2}
    assert data["critical_load"].isnull().all()


def test_a_setting_without_an_answer_is_unknown() -> None:
    axes = {"logit_scale": np.array([0.003, 1.0]), "load": np.array([1.0, 4.0])}
    data = phase_diagram(build, axes)
    assert data["region"].sel(logit_scale=0.003).values.tolist() == [-1, -1]
    assert data["region"].sel(logit_scale=1.0).values.tolist() == [0, 2]


BAD_AXES = {
    "one": ({"load": np.array([1.0, 2.0])}, "`axes` must be two, got load"),
    "unknown": (
        {"load": np.array([1.0, 2.0]), "noise": np.array([1.0, 2.0])},
        "`axes` must be among load, .* got 'noise'",
    ),
    "falling": ({"load": np.array([2.0, 1.0]), "field": np.array([1.0, 2.0])}, "axis `load` must have at least two"),
    "halves": ({"load": np.array([1.0, 2.0]), "vocab": np.array([8.5, 9.0])}, "axis `vocab` must hold integers"),
}


@pytest.mark.parametrize("name", BAD_AXES)
def test_bad_axes_are_refused(name: str) -> None:
    axes, message = BAD_AXES[name]
    with pytest.raises(InvalidInput, match=message):
        phase_diagram(build, axes)


def test_the_command_writes_data_figure_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "diagram"
    main(["phase-diagram", "--x", "load:1.8:3:25", "--y", "field:-1:5:4", "--out", str(folder), "--json"])
    content = json.loads(capsys.readouterr().out)
    assert content == json.loads((folder / "phase_diagram.json").read_text())
    assert content["regions"] == ["disordered", "coexistence", "copy"]
    assert content["axes"]["field"] == [-1, 1, 3, 5]
    assert content["end_point"]["field"] == pytest.approx(4.049, abs=0.01)
    assert content["first_order"] == [True, True, True, False]
    with xr.open_dataset(folder / "phase_diagram.nc") as data:
        np.testing.assert_array_equal(data["region"].values, content["region"])
        assert data.attrs["end_point_load"] == pytest.approx(content["end_point"]["load"])
    assert (folder / "phase_diagram.png").stat().st_size > 10_000
    assert (folder / "phase_diagram.svg").exists()


def test_integer_axes_at_a_given_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--x", "length:14:18:3", "--y", "vocab:14:18:2", "--load", "2.6", "--out", str(tmp_path / "out")]
    main(["phase-diagram", *options])
    assert "Regions: disordered" in capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "phase_diagram.json").read_text())
    assert content["load"] == 2.6
    assert np.shape(content["region"]) == (3, 2)
    assert np.shape(content["spinodal_low"]) == (3, 2)


BAD = {
    "unknown": (["--x", "noise"], "`x` must name one of load, field, length, vocab, logit-scale, got 'noise'"),
    "same": (["--x", "field"], "`y` must differ from `x`, got 'field'"),
    "words": (["--x", "load:a:b:3"], "an axis must be NAME or NAME:FROM:TO:COUNT, got 'load:a:b:3'"),
    "backwards": (["--x", "load:3:1:5"], "axis `load` must go from a number to a larger one in 2 to 2000 values"),
    "negative": (["--x", "load:-1:1:5"], "axis `load` must not be negative"),
    "both": (["--load", "2"], "`load` must not be set where it is an axis, got 2.0"),
    "linear": (["--attention", "linear"], "`x` and `y` must not be the field for linear attention"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, message = BAD[name]
    with pytest.raises(SystemExit) as stop:
        main(["phase-diagram", *options, "--out", str(tmp_path / "out")])
    captured = capsys.readouterr()
    assert (stop.value.code, captured.out) == (2, "")
    assert message in captured.err
    assert list(tmp_path.iterdir()) == []
