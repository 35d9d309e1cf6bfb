"""The verdict where it must be right, and on runs that it must not be fooled by: each is a real run of the engine.

Quality criteria have wide margins here, so that a sound run fails one of them with a probability well below 1e-3.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ising import Ising
from potts import Potts

from bayes_attn import CopyTask, Evidence, InvalidInput, Population, Schedule, Starts, judge, measure, sample, theory
from bayes_attn.sampling import coexistence_path, load_path

HOT = np.arange(4) % 2 == 1
LADDER = Schedule(400, 60, 40)


def line(length: int) -> Evidence:
    """Softmax at V = L, on the line of coexistence."""
    posterior = Population(CopyTask(length, length))
    critical = theory.transition(posterior).critical_load
    starts = Starts((posterior.sample_prior, posterior.sample_copy), 4)
    path = coexistence_path(*theory.way_to_end(posterior))
    samples = sample(posterior, path, starts, Schedule(240, 30, 40), 5, rungs=8)
    return measure(posterior, samples, HOT, length, [0], (0.9 * critical, 1.06 * critical))


def ladder(length: int, attention: str, loads: list[float], schedule: Schedule = LADDER, rungs: int = 9) -> Evidence:
    posterior = Population(CopyTask(length, length), attention)
    starts = Starts((posterior.sample_prior, posterior.sample_copy), 4)
    samples = sample(posterior, load_path(loads), starts, schedule, 5, rungs=rungs)
    return measure(posterior, samples, HOT, length)


@pytest.fixture(scope="module")
def sixteen_to_twenty() -> list[Evidence]:
    return [line(length) for length in (14, 16, 18, 20)]


@pytest.mark.slow
def test_softmax_at_20_is_first_order(sixteen_to_twenty: list[Evidence]) -> None:
    verdict = judge(sixteen_to_twenty)
    assert verdict.order == "first-order", verdict.reasons
    assert not verdict.at_this_size
    assert verdict.barriers.grows
    assert verdict.evidence.size == 20
    assert all(one.passed for one in verdict.criteria if one.name in ("barrier", "growth of the barrier", "R-hat"))


@pytest.mark.slow
def test_one_size_is_first_order_at_this_size_only(sixteen_to_twenty: list[Evidence]) -> None:
    """And the sampled figures are those of the analytic density, which has corrections of order 1/L."""
    verdict = judge(sixteen_to_twenty[-1:])
    assert (verdict.order, verdict.finding) == ("first-order", "first-order at this size")
    assert "4 in all (there are 1, at sizes 20)" in verdict.missing[0]
    phases = verdict.evidence.coexistence
    posterior = Population(CopyTask(20, 20))
    ((m, log_density),) = theory.softmax.log_densities(posterior, np.array([phases.equal_height]))
    low, high = (log_density[np.argmin(abs(m - peak))] for peak in phases.profile.peaks)
    valley = log_density[np.argmin(abs(m - phases.profile.valley))]
    assert abs(phases.barrier - ((low + high) / 2 - valley)) < 4.5 * phases.barrier_error + 0.2
    assert (
        abs(phases.equal_weight - theory.transition(posterior).critical_load) < 4.5 * phases.equal_weight_error + 0.01
    )


@pytest.mark.slow
def test_linear_attention_is_second_order_although_signed_m_has_two_humps() -> None:
    loads = [0.0, 0.3, 0.7, 1.1, 1.5, 1.9, 2.3, 2.7, 3.1]
    verdict = judge([ladder(length, "linear", loads, rungs=13) for length in (8, 10, 12, 16)])
    assert verdict.order == "second-order", verdict.reasons
    assert verdict.evidence.signed
    assert verdict.evidence.barrier < 0.4


@pytest.mark.slow
def test_softmax_below_the_end_of_the_line_is_a_crossover() -> None:
    loads = [0.0, 1.3, 2.3, 2.7, 3.2, 4.0]
    verdict = judge([ladder(length, "softmax", loads, rungs=6) for length in (7, 8, 9, 10)])
    assert verdict.order == "crossover", verdict.reasons
    assert not verdict.at_this_size


@pytest.mark.slow
@pytest.mark.parametrize(("colours", "sizes"), [(3, (400, 800, 1600, 3200)), (4, (100, 200, 300, 400))])
def test_potts_is_first_order(colours: int, sizes: tuple[int, ...]) -> None:
    runs = []
    for spins in sizes:
        posterior = Potts(colours, float(spins))
        critical = 2 * (colours - 1) * np.log(colours - 1) / (colours - 2)
        path = load_path(np.array([0, 0.8, 0.9, 0.95, 0.97, 1.0, 1.03, 1.1]) * critical)

        def ordered(key: jax.Array, posterior: Potts = posterior) -> jax.Array:
            return posterior.sample_prior(key).at[0].add(1.5 * jnp.sqrt(posterior.spins))

        starts = Starts((posterior.sample_prior, ordered), 4)
        samples = sample(posterior, path, starts, Schedule(600, 800, 20), 3, rungs=16)
        runs.append(measure(posterior, samples, HOT, spins))
    verdict = judge(runs)
    assert verdict.order == "first-order", verdict.reasons
    assert not verdict.at_this_size


@pytest.mark.slow
def test_curie_weiss_ising_is_second_order() -> None:
    """Fluctuations at its critical point grow as the square root of the number of spins."""
    runs = []
    for spins in (100, 200, 400, 800):
        posterior = Ising(float(spins))
        starts = Starts((posterior.sample_prior, posterior.sample_ordered), 4)
        path = load_path([0.0, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4])
        runs.append(
            measure(posterior, sample(posterior, path, starts, Schedule(300, 100, 20), 3, rungs=12), HOT, spins)
        )
    verdict = judge(runs)
    assert verdict.order == "second-order", verdict.reasons
    assert verdict.fluctuations.exponent == pytest.approx(0.5, abs=0.1)


def test_chains_that_never_crossed_are_undecided() -> None:
    """L = V = 24: a barrier of 8 kT that a ladder along the data amount does not cross."""
    run = ladder(24, "softmax", [0.0, 1.2, 2.3, 2.5066, 2.7, 3.4], Schedule(200, 20, 20), rungs=6)
    verdict = judge([run])
    assert verdict.order == "undecided"
    assert run.phase_round_trips == 0
    for name in ("R-hat", "round trips between phases", "cold against hot starts", "least swap rate"):
        assert any(reason.startswith(name) for reason in verdict.reasons), name
    assert verdict.longer is None or verdict.longer > 10


def test_a_run_that_is_too_short_is_undecided() -> None:
    verdict = judge([ladder(16, "softmax", [0.0, 1.6, 2.4, 2.614, 2.82, 3.7], Schedule(40, 2, 20), rungs=6)])
    assert verdict.order == "undecided"
    assert verdict.longer is None or verdict.longer > 2


def test_sizes_must_differ() -> None:
    run = ladder(8, "softmax", [0.0, 2.0, 4.0], Schedule(40, 4, 20), rungs=6)
    with pytest.raises(InvalidInput, match="must have different sizes"):
        judge([run, run])
