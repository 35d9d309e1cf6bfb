import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "experiments"))

import end_of_line
import long_histogram
import neighbours
import positional_semantic
import precursor
import quenched
import scaling
import softmax_vs_linear
from text_tokens import text_tokens

from bayes_attn import CopyTask, Population, theory
from bayes_attn.errors import InvalidInput


def test_text_becomes_tokens() -> None:
    tokens = text_tokens("abba cab! ABBA cab? Zebra, abba " * 4, length=8, vocab=4, sequences=5, seed=0)
    assert tokens.shape == (5, 8)
    CopyTask(8, 4).check_tokens(tokens)
    windows = np.array(list("abba cab abba cab zebra abba ")).tolist()
    frequent = ["a", "b", " "]
    expected = [frequent.index(c) if c in frequent else 3 for c in windows[:8]]
    everything = text_tokens("abba cab! ABBA cab? Zebra, abba " * 4, length=8, vocab=4, sequences=99, seed=0)
    assert expected in everything.tolist()


def test_fits_recognise_their_own_law() -> None:
    lengths = 2.0 ** np.arange(4, 15)
    laws = {
        "ln²L": 3 * np.log(lengths) ** 2,
        "L ln L": 2 * lengths * np.log(lengths),
        "L^a": 0.7 * lengths**0.6,
        "(ln L + c)²": 0.3 * (np.log(lengths) + 5) ** 2,
        "L (ln L + c)²": 0.3 * lengths * (np.log(lengths) + 5) ** 2,
    }
    noise = np.exp(1e-3 * np.random.default_rng(2).standard_normal(len(lengths)))
    for law, values in laws.items():
        best = scaling.fits(lengths, values * noise)[0]
        assert best.law == law
        if law == "L^a":
            assert best.parameter == pytest.approx(0.6, abs=2e-3)
        if "c" in law:
            assert best.parameter == pytest.approx(5, abs=0.1)


def test_the_scaling_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scaling.main(tmp_path / "out", largest=128)
    assert "V = 8, transition P*, noise per entry: best" in capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "scaling.json").read_text())
    # theory.md section 7: 28.6 and 32.1 at L = 64 and 128.
    assert content["V = 8"]["rows"]["critical_data"][-2:] == pytest.approx([28.6, 32.1], rel=0.01)
    assert (tmp_path / "out" / "scaling.png").stat().st_size > 10_000


def test_the_precursor_study_runs(tmp_path: Path) -> None:
    precursor.main(tmp_path / "out", largest=16)
    rows = json.loads((tmp_path / "out" / "precursor.json").read_text())["rows"]
    assert [row["attention"] for row in rows] == ["softmax", "linear"]
    assert rows[1]["growth_at_transition"] > rows[0]["growth_at_transition"] > 1


def test_the_end_of_line_study_runs(tmp_path: Path) -> None:
    end_of_line.main(tmp_path / "out", small=True)
    (row,) = json.loads((tmp_path / "out" / "end_of_line.json").read_text())["rows"]
    low, high = end_of_line.window(14, largest=60, points=4)
    for vocab, order in ((low - 1, "crossover"), (low, "first"), (high, "first"), (high + 1, "crossover")):
        assert theory.transition(Population(CopyTask(14, vocab))).order == order
    assert row["smallest_first_order_length"] == 13
    assert row["points"][0]["field"] < 0 < row["points"][1]["field"]


def test_softmax_beside_linear_runs(tmp_path: Path) -> None:
    softmax_vs_linear.main(tmp_path / "out", small=True)
    rows = json.loads((tmp_path / "out" / "softmax_vs_linear.json").read_text())["rows"]
    assert [row["attention"] for row in rows] == ["softmax"] * 4 + ["linear"] * 4
    assert all(row["over_threshold"] >= 1.05 and 0 < row["largest_copy_mass_step"] <= 1 for row in rows)
    # A rise along a straight line, from a quarter to three quarters.
    rise = softmax_vs_linear.rise_steps(np.minimum(np.arange(101.0), 80.0)[None], every=10)
    assert rise == pytest.approx([400.0])


def test_the_positional_semantic_study_runs(tmp_path: Path) -> None:
    """At a ninth of the dimension and with four seeds the critical amount is the published one to within 15 %."""
    positional_semantic.main(tmp_path / "out", small=True)
    (row,) = json.loads((tmp_path / "out" / "positional_semantic.json").read_text())["rows"]
    assert row["critical"] == pytest.approx(1.241, rel=0.15)
    assert row["semantic"]["meaning"] > 5 * row["positional"]["meaning"]
    assert row["positional"]["position"] == pytest.approx(0.253, rel=0.1)
    assert "attention" in (tmp_path / "out" / "report.html").read_text()


def test_the_crossing_of_losses_and_its_error() -> None:
    """Seeds whose lines are shifted by independent normal numbers: the error is that of a mean."""
    amounts, shifts = np.array([0.9, 1.0, 1.1]), np.random.default_rng(5).standard_normal(40)
    difference = 2.0 * (amounts - 1.03) - 0.1 * shifts[:, None]
    assert positional_semantic.crossing(amounts, difference) == pytest.approx(1.03 + 0.05 * shifts.mean())
    assert positional_semantic.jackknife(amounts, difference) == pytest.approx(0.05 * shifts.std(ddof=1) / np.sqrt(40))


def test_neighbours_are_measured_as_they_are() -> None:
    """A sequence that repeats itself has all the information in its neighbour; in random order it has none."""
    text = np.tile(np.arange(4), (200, 2)) + 0
    assert neighbours.mutual_information(text, 1, 4) == pytest.approx(np.log(4))
    sets = neighbours.data_sets(text, seed=0)
    for name, tokens in sets.items():
        np.testing.assert_array_equal(np.bincount(tokens.ravel()), np.bincount(text.ravel()), err_msg=name)
    assert neighbours.kinds(16).max() == 5
    # 16 joint frequencies from 1,600 pairs: the bias of the information is about 9 / 3,200.
    assert neighbours.mutual_information(sets["independent"], 1, 4) < 0.02


def test_a_histogram_of_the_density_itself_is_near_it() -> None:
    grid = np.linspace(0, 1, 2001)
    density = theory.Density(grid, 6 * grid * (1 - grid))
    values = np.random.default_rng(3).beta(2, 2, size=(8, 20_000))
    found = long_histogram.compare(values, density)
    assert found["total_variation"] < 0.01
    assert found["noise"] < 0.01
    assert long_histogram.compare(values**1.2, density)["total_variation"] > 0.04


@pytest.mark.slow
def test_the_quenched_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two data sets of some ten sequences side by side: each has its own transition, near that of averaged data."""
    quenched.main(tmp_path / "out", small=True, length=14, vocab=8)
    content = json.loads((tmp_path / "out" / "quenched.json").read_text())
    (row,) = content["rows"]
    expected = theory.transition(Population(CopyTask(14, 8), noise=0.5)).steepest_load
    assert row["critical_data_averaged"] == pytest.approx(
        Population(CopyTask(14, 8), noise=0.5).num_sequences(expected)
    )
    rises = [entry["rise"] for entry in row["sets"]]
    assert len(set(rises)) == 2
    assert all(rise == pytest.approx(row["critical_data_averaged"], rel=0.2) for rise in rises)
    for entry in row["sets"]:
        assert entry["copy_mass"][0] < 0.15 < 0.4 < entry["copy_mass"][-1]
    # Stopped after its only noise, it goes on without sampling again; other settings are refused.
    (tmp_path / "out" / "quenched.json").unlink()
    monkeypatch.delattr(quenched, "sample")
    quenched.main(tmp_path / "out", small=True, length=14, vocab=8, resume=True)
    assert json.loads((tmp_path / "out" / "quenched.json").read_text()) == content
    with pytest.raises(InvalidInput, match="`resume` must meet a run with"):
        quenched.main(tmp_path / "out", small=True, length=14, vocab=8, seed=1, resume=True)
