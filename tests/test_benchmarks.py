import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

from row_law import quadrature, sampled


def test_both_methods_of_the_row_law_benchmark_measure_the_same_thing() -> None:
    exact, drawn = quadrature(8, 1.0, 4.0, -3.0), sampled(8, 200_000, 4.0, -3.0, seed=0)
    assert drawn == pytest.approx(exact, abs=0.01)
