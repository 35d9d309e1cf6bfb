"""Two phases behind a barrier of 8 kT (L = V = 24): three ways to their weights that share no crossing of it.

Along the line of coexistence both phases are seen at the target itself; round four legs each end holds one phase, and
the weight is a ratio of normalisations; the theory integrates p(m).
"""

import numpy as np
import pytest

from bayes_attn import CopyTask, Population, Samples, Schedule, Starts, sample, theory
from bayes_attn.diagnostics import estimate
from bayes_attn.free_energy import phase_weight, stepping_stone
from bayes_attn.sampling import Pilot, coexistence_path, four_legs, pilot

pytestmark = pytest.mark.slow
BORDERS = (0.14, 0.34)


@pytest.fixture(scope="module")
def posterior() -> Population:
    return Population(CopyTask(24, 24))


@pytest.fixture(scope="module")
def transition(posterior: Population) -> theory.Transition:
    return theory.transition(posterior)


@pytest.fixture(scope="module")
def line(posterior: Population) -> Samples:
    starts = Starts((posterior.sample_prior, posterior.sample_copy), 8)
    path = coexistence_path(*theory.way_to_end(posterior))
    return sample(posterior, path, starts, Schedule(400, 50, 40), 7, rungs=8)


@pytest.fixture(scope="module")
def found(posterior: Population, transition: theory.Transition) -> Pilot:
    return pilot(posterior, transition.critical_load, posterior.sample_prior, posterior.sample_copy, 0)


def test_the_line_crosses_and_cold_and_hot_starts_agree(line: Samples, transition: theory.Transition) -> None:
    """At the target: ten or more round trips between phases; the difference at 4.5 standard errors."""
    assert line.advice() == ()
    assert line.phase_round_trips(*BORDERS, [0]) >= 50
    copied = (line.order_parameters.copy_mass[:, :, 0] > transition.copy_mass_barrier).astype(float)
    cold, hot = estimate(copied[0::2]), estimate(copied[1::2])
    assert abs(cold.mean - hot.mean) < 4.5 * np.hypot(cold.error, hot.error)
    assert max(cold.error, hot.error) < 0.05
    # Neighbours of the target have both phases with comparable weight, as the theory's line promises.
    shares = (line.order_parameters.copy_mass > transition.copy_mass_barrier).mean(axis=(0, 1))
    assert np.all(np.abs(shares[:4] - 0.5) < 0.12)


def test_the_pilot_goes_beyond_the_end_point(
    found: Pilot, posterior: Population, transition: theory.Transition
) -> None:
    end = theory.end_point(posterior)
    assert end.field < found.field < 4 * end.field
    assert found.low == pytest.approx(transition.copy_mass_disordered, abs=0.01)
    assert found.high == pytest.approx(transition.copy_mass_copy, abs=0.02)
    assert transition.copy_mass_disordered + 0.1 < found.cut < transition.copy_mass_copy - 0.1


def test_all_ways_give_the_same_weight(
    line: Samples, found: Pilot, posterior: Population, transition: theory.Transition
) -> None:
    """Line, four legs and p(m) pairwise at 4.5 standard errors; corrections of order 1/L to p(m) are 0.02 here."""
    cut = transition.copy_mass_barrier
    starts = Starts((posterior.sample_prior, posterior.sample_copy), 4)
    path = four_legs(transition.critical_load, found.field, cut)
    legs = sample(posterior, path, starts, Schedule(500, 40, 40), 7, rungs=40)
    ends = legs.order_parameters.copy_mass[:, :, [0, -1]]
    assert np.all(ends[:, :, 0] <= cut)
    assert np.all(ends[:, :, 1] >= cut)
    assert not legs.non_finite.any()
    weight, error = phase_weight(stepping_stone(legs))
    seen = estimate((line.order_parameters.copy_mass[:, :, 0] > cut).astype(float))
    (density,) = theory.densities(posterior, [transition.critical_load])
    expected = np.trapezoid(np.where(density.copy_mass > cut, density.probability, 0.0), density.copy_mass)
    assert error < 0.04
    assert seen.error < 0.03
    assert abs(weight - seen.mean) < 4.5 * np.hypot(error, seen.error)
    assert abs(weight - expected) < 4.5 * error + 0.02
    assert abs(seen.mean - expected) < 4.5 * seen.error + 0.02


def test_there_is_nothing_to_go_round_where_there_is_one_phase(softmax_16: Population) -> None:
    with pytest.raises(ArithmeticError, match="cold and hot starts agree at load 1.5"):
        pilot(softmax_16, 1.5, softmax_16.sample_prior, softmax_16.sample_copy, 0)
