import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bayes_attn import CopyTask, InvalidInput, Population, plan
from bayes_attn.cli import main

KEYS = {
    "phase", "load", "data", "critical_data", "spinodal_low_data", "spinodal_high_data", "data_to_coexistence",
    "data_to_lose_metastability", "map_spinodal_low_data", "map_critical_data", "map_spinodal_high_data",
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "phase"), [(20, "below"), (41.2, "metastable"), (41.8, "coexistence"), (43.2, "metastable"), (60, "above")]
)
def test_phases_of_softmax(softmax_16: Population, data: float, phase: str) -> None:
    """theory.md section 7: coexistence at 41.8. Adam's spinodals lie where descent over all parameters of averaged data
    lost and kept the copy pattern (loads 1.50 and 1.52), and kept and left the disordered state (2.02 and 2.035)."""
    found = plan(softmax_16, data)
    assert found.phase == phase
    assert found.critical_data == pytest.approx(41.83, abs=0.05)
    assert found.data_to_coexistence == pytest.approx(max(0.0, 41.83 - data), abs=0.05)
    assert found.data_to_lose_metastability == pytest.approx(max(0.0, 43.36 - data), abs=0.1)
    assert 24.0 < found.map_spinodal_low_data < 24.33
    assert found.map_spinodal_low_data < found.map_critical_data < found.map_spinodal_high_data
    assert 32.32 < found.map_spinodal_high_data < 32.56


def test_linear_attention_beside_softmax(softmax_16: Population) -> None:
    linear = plan(softmax_16, 35).linear
    assert linear is not None
    assert linear.phase == "above"
    assert linear.critical_data == pytest.approx(16 * (1 + 256 / 240))
    assert linear.spinodal_low_data is None
    assert linear.linear is None


def test_noise_scales_every_data_amount(softmax_16: Population) -> None:
    quiet, loud = plan(softmax_16, 30), plan(Population(CopyTask(16, 16), noise=4.0), 120)
    assert loud.phase == quiet.phase
    assert loud.critical_data == pytest.approx(4 * quiet.critical_data)
    assert loud.map_spinodal_high_data == pytest.approx(4 * quiet.map_spinodal_high_data)


def test_a_crossover_has_two_sides() -> None:
    posterior = Population(CopyTask(10, 10))
    assert plan(posterior, 20).phase == "below"
    assert plan(posterior, 40).phase == "above"
    assert plan(posterior, 40).data_to_coexistence is None


def test_no_data_is_refused(softmax_16: Population) -> None:
    with pytest.raises(InvalidInput, match="plan: `data` must be a positive finite number, got 0"):
        plan(softmax_16, 0)


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "--data", "35", "--json"])
    content = json.loads(capsys.readouterr().out)
    assert set(content) >= KEYS
    assert set(content["linear"]) >= KEYS
    main(["plan", "--data", "35"])
    assert "data to coexistence" in capsys.readouterr().out
    for bad in ([], ["--data", "-1"], ["--data", "many"]):
        with pytest.raises(SystemExit) as stop:
            main(["plan", *bad])
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


TABLE = """length,vocab,data,attention,zipf,causal
16,16,40,softmax,,false
16,16,40,linear,,false
16,16,40,softmax,1.0,false
"""


def test_a_table_of_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings.csv").write_text(TABLE)
    main(["plan", "--table", str(tmp_path / "settings.csv"), "--noise", "2", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["attention"] for row in rows] == ["softmax", "linear", "softmax"]
    assert all(row["noise"] == 2 for row in rows)
    for row, attention in zip(rows[:2], ("softmax", "linear"), strict=True):
        alone = asdict(plan(Population(CopyTask(16, 16), attention, noise=2.0), 40.0))
        del alone["linear"]
        for name, value in alone.items():
            assert row[name] == (pytest.approx(value, abs=1e-9) if isinstance(value, float) else value), name
    # Unequal frequencies weaken the transition: at this size they make it a crossover, at less data.
    assert rows[2]["order"] == "crossover"
    assert rows[2]["centre_data"] < rows[0]["centre_data"]
    main(["plan", "--table", str(tmp_path / "settings.csv")])
    assert capsys.readouterr().out.count("softmax") == 2


BAD_TABLES = {
    "no file": (None, "`table` must be a file that exists"),
    "empty": ("", "`table` must have a header and at least one row"),
    "header alone": ("length,data\n", "`table` must have a header and at least one row"),
    "unknown column": ("size,data\n3,4\n", "`table` must have columns named like options, got 'size'"),
    "a word": ("length,data\nmany,4\n", "`length` must be an integer, got 'many' in line 2"),
    "short row": ("length,data\n16\n", "`table` must have a value in every column, got none for 'data' in line 2"),
    "no data": ("length\n16\n", "`data` must be a column of the table or set, got none in line 2"),
    "refused": ("length,data\n2,4\n", "`length` must be an integer of at least 3, got 2"),
    "not positive": ("data\n-4\n", "`data` must be a positive finite number, got -4.0"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = BAD_TABLES[name]
    if content is not None:
        (tmp_path / "settings.csv").write_text(content)
    with pytest.raises(SystemExit) as stop:
        main(["plan", "--table", str(tmp_path / "settings.csv")])
    captured = capsys.readouterr()
    assert (stop.value.code, captured.out) == (2, "")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_no_data_and_no_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan"])
    assert "`data` must be set, or table, got None" in capsys.readouterr().err
