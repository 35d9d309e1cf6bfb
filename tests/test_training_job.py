"""`bayes-attn train`: what it writes, what it says, and how it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from bayes_attn.cli import main

SMALL = ["train", "--length", "12", "--vocab", "12", "--seeds", "2", "--steps", "1500", "--every", "50"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("train") / "run"
    main([*SMALL, "--data", "8,30,60", "--out", str(out)])
    return out


def test_results(folder: Path) -> None:
    """P = 8 is below both of the landscape's spinodals, P = 60 above; the published landscape is tested elsewhere."""
    results = json.loads((folder / "results.json").read_text())
    low, equal, high = (results[f"map_{name}_data"] for name in ("spinodal_low", "critical", "spinodal_high"))
    assert 8 < low < equal < high < 60
    for start in ("cold", "hot"):
        median, *spread = (results[f"switch_data_{start}{end}"] for end in ("", "_low", "_high"))
        assert spread[0] <= median <= spread[1]
        assert median in (19.0, 45.0)
    for row in results["rows"]:
        if row["data"] != 30:
            assert (row["copy_mass"] > results["copy_mass_cut"]) == (row["data"] == 60)
    assert 0 < results["largest_loss_step"] <= 1
    assert 0 < results["largest_copy_mass_step"] <= 1
    assert 0 < results["largest_copy_mass_step_at"] <= 1500
    with np.load(folder / "training.npz") as arrays:
        assert arrays["copy_mass"].shape == (2, 2, 3, 31)
        assert arrays["attention"].shape == (2, 3, 31, 12, 12)
        np.testing.assert_array_equal(arrays["steps"], np.arange(0, 1501, 50))
        at_end = [row["copy_mass"] for row in results["rows"] if row["start"] == "hot"]
        np.testing.assert_allclose(at_end, np.median(np.abs(arrays["copy_mass"][:, 1, :, -1]), axis=0), rtol=1e-6)
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "uv run bayes-attn train --length 12 --vocab 12 --data 8,30,60 --seeds 2" in page


def test_a_run_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "results.json").read_bytes()
    with pytest.raises(SystemExit) as stop:
        main([*SMALL, "--out", str(folder)])
    assert stop.value.code == 2
    assert "which holds a run's results" in capsys.readouterr().err
    assert (folder / "results.json").read_bytes() == before


BAD = {
    "words": (["--data", "few"], "`data` must be auto, or numbers with commas between, got 'few'"),
    "endless": (["--data", "3,inf"], "`data` must be positive and increase, got '3,inf'"),
    "backwards": (["--data", "9,3"], "`data` must be positive and increase, got '9,3'"),
    "no seeds": (["--seeds", "0"], "`seeds` must be an integer of at least 1, got 0"),
    "records": (["--every", "7"], "`every` must divide the 1500 steps, got 7"),
    "no rate": (["--rate", "0"], "`rate` must be"),
    "causal": (["--causal"], "`causal` must be False"),
    "prior": (["--prior", "relative-bias"], "`prior` must be iid"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, message = BAD[name]
    with pytest.raises(SystemExit) as stop:
        main([*SMALL[:-2], "--every", "50", *options, "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
