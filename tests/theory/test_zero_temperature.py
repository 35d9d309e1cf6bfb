"""Adam's landscape: the published loads, and its minima counted on a grid."""

import numpy as np
import pytest

from bayes_attn import CopyTask, Population
from bayes_attn.theory import landscape

# theory.md section 8.
PUBLISHED = {16: (1.580, 1.709, 2.094), 24: (1.352, 1.545, 2.408)}
COPY_MASSES = {16: (0.076, 0.505), 24: (0.046, 0.573)}


@pytest.mark.parametrize("size", PUBLISHED)
def test_published_loads(size: int) -> None:
    found = landscape(Population(CopyTask(size, size)))
    for value, published in zip(
        (found.spinodal_low, found.critical_load, found.spinodal_high), PUBLISHED[size], strict=True
    ):
        assert value == pytest.approx(published, abs=0.0011)
    assert (found.copy_mass_disordered, found.copy_mass_copy) == pytest.approx(COPY_MASSES[size], abs=0.001)


def minima(posterior: Population, load: float) -> np.ndarray:
    """Energies of the local minima along the copy pattern, from a plain grid."""
    length, vocab = posterior.task.length, posterior.task.vocab
    s = np.linspace(-2, 12, 200_001)
    weights = np.exp(s) + length - 1
    m, q = np.exp(s) / weights, (np.exp(2 * s) + length - 1) / weights**2
    energy = -0.5 * vocab * (vocab - 1) * (load / posterior.value_scale) ** 2 * m**2 / (1 + load * q)
    energy += length * s**2 / (2 * posterior.logit_scale**2)
    inside = (energy[1:-1] < energy[:-2]) & (energy[1:-1] < energy[2:])
    return energy[1:-1][inside]


@pytest.mark.parametrize(
    ("length", "vocab", "logit_scale", "value_scale"), [(16, 16, 1, 1), (32, 8, 0.7, 1.4), (24, 12, 1.5, 0.6)]
)
def test_minima_appear_exchange_and_vanish(length: int, vocab: int, logit_scale: float, value_scale: float) -> None:
    posterior = Population(CopyTask(length, vocab), "softmax", float(logit_scale), float(value_scale))
    found = landscape(posterior)
    assert len(minima(posterior, 0.999 * found.spinodal_low)) == 1
    assert len(minima(posterior, 1.001 * found.spinodal_low)) == 2
    disordered, copy = minima(posterior, found.critical_load)
    assert disordered == pytest.approx(copy, rel=1e-4)
    assert len(minima(posterior, 0.999 * found.spinodal_high)) == 2
    assert len(minima(posterior, 1.001 * found.spinodal_high)) == 1


def test_small_sizes_have_one_minimum_at_every_load() -> None:
    posterior = Population(CopyTask(8, 8))
    assert landscape(posterior).critical_load is None
    assert all(len(minima(posterior, load)) == 1 for load in np.linspace(0.1, 6, 60))


def test_linear_attention_leaves_zero_continuously() -> None:
    """At the critical load the curvature in m of section 8's energy changes sign at m = 0."""
    posterior = Population(CopyTask(16, 12), "linear", 0.8, 1.3)
    critical = landscape(posterior).critical_load
    curvature = 16**2 / 0.8**2 - 12 * 11 * (critical / 1.3) ** 2
    assert curvature == pytest.approx(0, abs=1e-9)
