"""The verdict on runs that it must not be fooled by: each is a real, short run of the main job's engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_attn import CopyTask, Population, Schedule, Verdict, judge, load_ladder, sample


def run(posterior: Population, loads: list[float], borders: tuple[float, float], schedule: Schedule) -> Verdict:
    keys = jax.random.split(jax.random.key(4), (4, len(loads)))
    cold, copied = (jax.vmap(jax.vmap(start))(keys) for start in (posterior.sample_prior, posterior.sample_copy))
    hot = np.arange(4) % 2 == 1
    initial = jnp.where(hot[:, None, None, None], copied, cold)
    return judge(sample(posterior, load_ladder(loads), initial, schedule, seed=5), hot, borders)


def test_softmax_at_16_has_two_phases(softmax_16: Population) -> None:
    loads = [0.0, 0.8, 1.6, 2.1, 2.4, 2.614, 2.82, 3.2, 3.7]
    verdict = run(softmax_16, loads, (0.17, 0.31), Schedule(400, 250, 40))
    assert verdict.finding == "two phases"
    assert loads[verdict.depth_rung] == 2.614
    # The theory's barrier of the density with its prefactor, 0.79(2) kT.
    assert abs(verdict.depth - 0.79) < 3 * verdict.depth_error + 0.1
    assert verdict.phase_round_trips > 50


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_a_crossover_and_a_second_order_transition_are_continuous(attention: str) -> None:
    """Linear attention although its signed m has two humps; softmax at V = L = 10, below the end of the line."""
    size = 16 if attention == "linear" else 10
    posterior = Population(CopyTask(size, size), attention)
    loads = [0.0, 0.3, 0.7, 1.1, 1.5, 1.9, 2.3, 2.7, 3.1] if attention == "linear" else [0.0, 1.3, 2.3, 2.7, 3.2, 4.0]
    verdict = run(posterior, loads, (0.15, 0.35), Schedule(400, 60, 40))
    assert verdict.finding == "continuous"
    assert verdict.depth < 0.1


def test_chains_that_never_crossed_are_undecided() -> None:
    """L = V = 24: a barrier of 8 kT that a ladder along the data amount does not cross."""
    posterior = Population(CopyTask(24, 24))
    verdict = run(posterior, [0.0, 1.2, 2.3, 2.5066, 2.7, 3.4], (0.14, 0.34), Schedule(200, 20, 20))
    assert verdict.finding == "undecided"
    assert verdict.phase_round_trips == 0
    assert any("R-hat" in reason for reason in verdict.reasons)
    assert any("round trips" in reason for reason in verdict.reasons)
    assert any("cold and hot" in reason for reason in verdict.reasons)


def test_a_run_that_is_too_short_is_undecided(softmax_16: Population) -> None:
    verdict = run(softmax_16, [0.0, 1.6, 2.4, 2.614, 2.82, 3.7], (0.17, 0.31), Schedule(40, 2, 20))
    assert verdict.finding == "undecided"
