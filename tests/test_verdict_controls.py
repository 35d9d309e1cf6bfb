"""The verdict on transitions of a known order: Potts, Ising, linear attention, and softmax where it crosses over.

Each is a real run of the engine. Quality criteria have wide margins here, so that a sound run fails one of them with a
probability well below 1e-3.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ising import Ising
from potts import Potts

from bayes_attn import CopyTask, Evidence, Population, Schedule, Starts, judge, measure, sample
from bayes_attn.sampling import load_path

HOT = np.arange(4) % 2 == 1


def ladder(length: int, attention: str, loads: list[float], rungs: int) -> Evidence:
    posterior = Population(CopyTask(length, length), attention)
    starts = Starts((posterior.sample_prior, posterior.sample_copy), 4)
    samples = sample(posterior, load_path(loads), starts, Schedule(300, 40, 40), 5, rungs=rungs)
    return measure(posterior, samples, HOT, length)


@pytest.mark.slow
def test_linear_attention_is_second_order_although_signed_m_has_two_humps() -> None:
    loads = [0.0, 0.3, 0.7, 1.1, 1.5, 1.9, 2.3, 2.7, 3.1]
    verdict = judge([ladder(length, "linear", loads, 13) for length in (8, 10, 12, 16)])
    assert verdict.order == "second-order", verdict.reasons
    assert verdict.evidence.signed
    assert verdict.evidence.barrier < 0.4


@pytest.mark.slow
def test_softmax_below_the_end_of_the_line_is_a_crossover() -> None:
    loads = [0.0, 1.3, 2.3, 2.7, 3.2, 4.0]
    verdict = judge([ladder(length, "softmax", loads, 6) for length in (7, 8, 9, 10)])
    assert verdict.order == "crossover", verdict.reasons
    assert not verdict.at_this_size


@pytest.mark.slow
@pytest.mark.parametrize(("colours", "sizes"), [(3, (200, 400, 800, 1600)), (4, (100, 200, 300, 400))])
def test_potts_is_first_order(colours: int, sizes: tuple[int, ...]) -> None:
    """All sizes side by side in one run."""
    posteriors = [Potts(colours, float(spins)) for spins in sizes]
    critical = 2 * (colours - 1) * np.log(colours - 1) / (colours - 2)

    def ordered(key: jax.Array) -> jax.Array:
        return posteriors[0].sample_prior(key).at[0].add(1.5 * jnp.sqrt(sizes[0]))

    starts = Starts((posteriors[0].sample_prior, ordered), 4)
    path = load_path(np.array([0, 0.9, 0.97, 1.0, 1.03, 1.1]) * critical)
    samples = sample(posteriors, path, starts, Schedule(400, 300, 20), 3, rungs=11)
    verdict = judge([measure(posteriors[i], samples.of(i), HOT, size) for i, size in enumerate(sizes)])
    assert verdict.order == "first-order", verdict.reasons
    assert not verdict.at_this_size


def test_a_broken_ladder_is_undecided() -> None:
    """Three rungs from the prior to past the transition: neighbours hardly overlap, so that replicas do not move."""
    posterior = Potts(4, 1600.0)
    path = load_path([0.0, 3.3, 3.6])
    samples = sample(posterior, path, Starts((posterior.sample_prior,), 4), Schedule(60, 10, 20), 3, rungs=3)
    verdict = judge([measure(posterior, samples, HOT, 1600)])
    assert verdict.order == "undecided"
    assert verdict.evidence.swap_rate < 0.01
    assert any(reason.startswith("least swap rate") for reason in verdict.reasons)


@pytest.mark.slow
def test_curie_weiss_ising_is_second_order() -> None:
    """Fluctuations at its critical point grow as the square root of the number of spins."""
    sizes = (100, 200, 400, 800)
    posteriors = [Ising(float(spins)) for spins in sizes]
    starts = Starts((posteriors[0].sample_prior, posteriors[0].sample_ordered), 4)
    path = load_path([0.0, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4])
    samples = sample(posteriors, path, starts, Schedule(300, 100, 20), 3, rungs=12)
    verdict = judge([measure(posteriors[i], samples.of(i), HOT, size) for i, size in enumerate(sizes)])
    assert verdict.order == "second-order", verdict.reasons
    assert verdict.fluctuations.exponent == pytest.approx(0.5, abs=0.1)
