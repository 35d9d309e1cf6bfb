"""Errors cover what is known by quadrature: fifty runs of four chains side by side, each measured by itself."""

import numpy as np
import pytest
from two_wells import TwoWells

from bayes_attn import Controls, Schedule, Starts, sample
from bayes_attn.free_energy import coexistence, phase_normalisations, pool, rise
from bayes_attn.sampling import load_path

REPEATS = 50


def measured(repeats: int, seed: int) -> dict[str, np.ndarray]:
    """(value, error) of every quantity in every repeat."""
    posterior = TwoWells()
    path = load_path([0.0, 0.7, 1.4, 2.0])
    starts, schedule = Starts((posterior.sample_prior,), 4), Schedule(200, 200, 10)
    samples = sample([posterior] * repeats, path, starts, schedule, seed, rungs=5)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in posterior.exact()}
    between = Controls(np.ones(1), np.array([0.75]), np.zeros(1))
    for number in range(repeats):
        together = pool(posterior, samples.of(number))
        risen = rise(together, 0.0, 2.0)
        assert risen is not None
        phases = coexistence(together, risen)
        for name in ("equal_weight", "equal_height", "barrier", "latent_heat"):
            found[name].append((getattr(phases, name), getattr(phases, f"{name}_error")))
        last = together.log_normalisation[:, -1]
        found["log_normalisation"].append((float(last[0]), float(together.error(last))))
        means = together.means(together.log_tilt(between)[0], together.order[:, None])[:, 0]
        found["mean"].append((float(means[0]), float(together.error(means))))
        values, errors, _ = phase_normalisations(together, np.array([0.75]), 5.0)
        for phase, name in enumerate(("lower", "upper")):
            found[name].append((float(values[0, phase]), float(errors[0, phase])))
    return {name: np.array(pairs) for name, pairs in found.items()}


@pytest.mark.slow
def test_errors_cover_between_55_and_80_per_cent() -> None:
    """68 % intervals of eight quantities, both coexistence points among them."""
    exact, found = TwoWells().exact(), measured(REPEATS, seed=3)
    coverage = {name: np.mean(np.abs(pairs[:, 0] - exact[name]) < pairs[:, 1]) for name, pairs in found.items()}
    assert all(0.55 <= share <= 0.80 for share in coverage.values()), coverage
    # And no bias that the errors of single runs would hide: the mean of fifty, at 4.5 standard errors.
    for name, pairs in found.items():
        error = pairs[:, 0].std(ddof=1) / np.sqrt(REPEATS)
        assert abs(pairs[:, 0].mean() - exact[name]) < 4.5 * error, name
