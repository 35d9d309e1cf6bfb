import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import engine
import training
from row_law import quadrature, sampled


def test_both_methods_of_the_row_law_benchmark_measure_the_same_thing() -> None:
    exact, drawn = quadrature(8, 1.0, 4.0, -3.0), sampled(8, 200_000, 4.0, -3.0, seed=0)
    assert drawn == pytest.approx(exact, abs=0.01)


def test_the_training_benchmark_runs() -> None:
    found = training.measure(training.Sweep(length=6, vocab=6, seeds=2, amounts=3, steps=50))
    assert found["networks"] == 12
    assert found["speedup"] == pytest.approx(found["seconds_per_network_alone"] * 12 / found["seconds"])


def test_the_engine_benchmark_runs(tmp_path: Path) -> None:
    """Its small size; the figures of the full one are in the README."""
    engine.main(tmp_path / "engine.json", small=True)
    result = json.loads((tmp_path / "engine.json").read_text())
    assert [row["path"] for row in result["crossing"]] == ["coexistence"]
    for row in result["crossing"]:
        assert row["scans"] == 400
        assert 0 <= row["copy_weight"] <= 1
        assert row["theory_copy_weight"] == pytest.approx(0.507, abs=0.02)
    assert result["steps"][0]["phase_round_trips_per_second"] >= 0
    assert result["overhead"]["share"] < 1
    assert result["versions"]["jax"]
