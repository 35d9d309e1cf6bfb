"""The verdict on softmax attention, and on runs that it must not be fooled by: each is a real run of the engine.

Quality criteria have wide margins here, so that a sound run fails one of them with a probability well below 1e-3.
"""

import numpy as np
import pytest

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
