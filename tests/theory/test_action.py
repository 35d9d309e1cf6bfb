from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_attn import CopyTask, DataSet, HeadProduct, InvalidInput, Population, RelativeBias
from bayes_attn.theory.action import Action, specification

ZIPF = tuple((1 / np.arange(1, 6) / np.sum(1 / np.arange(1, 6))).tolist())


@pytest.mark.parametrize("frequencies", [None, ZIPF])
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_the_action_is_minus_the_sampled_log_likelihood(
    attention: str, frequencies: tuple[float, ...] | None, key: jax.Array
) -> None:
    """Theory and sampling share no code for U, and use different algebra; here they meet."""
    posterior = Population(CopyTask(6, 5, frequencies=frequencies), attention, value_scale=1.4)
    action = specification(posterior, attention).action
    for draw in jax.random.split(key, 3):
        params = posterior.sample_copy(draw)
        for load in map(jnp.asarray, (0.0, 0.3, 2.5)):
            energy = action.energy(load, *posterior.order_parameters(params))
            np.testing.assert_allclose(-posterior.log_likelihood(params, load), energy, rtol=1e-12, atol=1e-12)


def test_uniform_tokens_have_the_published_form() -> None:
    """U = 1/2 V (V-1) [log(1 + aq) - (a/w^2) m^2 / (q + 1/a)] + the uniform direction (theory, section 3)."""
    vocab, load, m, q, overlap, power, scale = 7, 1.7, 0.3, 0.2, 0.9, 1.3, 0.8
    action = Action(np.array(16.0), np.array(scale), np.array([1 / vocab]), np.array([7.0]))

    def direction(m: float, q: float) -> float:
        return np.log(1 + load * q) - load / scale**2 * m**2 / (q + 1 / load)

    expected = 0.5 * vocab * ((vocab - 1) * direction(m, q) + direction(overlap, power))
    assert float(action.energy(load, m, q, overlap, power)) == pytest.approx(expected, rel=1e-12)


def test_conjugates_are_those_of_the_theory() -> None:
    """t and u of section 4b, written out for uniform tokens."""
    vocab, load, m, q, scale = 12, 1.7, 0.3, 0.2, 0.8
    action = Action(np.array(16.0), np.array(scale), np.array([1 / vocab]), np.array([12.0]))
    t, u = action.conjugates(jnp.asarray(load), jnp.asarray(m), jnp.asarray(q))
    stiffness, growth = vocab * (vocab - 1) / 16, 1 + load * q
    assert float(t) == pytest.approx(stiffness * load**2 / scale**2 * m / growth, rel=1e-12)
    by_q = load / growth + load**3 / scale**2 * m**2 / growth**2
    assert float(u) == pytest.approx(-0.5 * stiffness * by_q, rel=1e-12)


def test_unused_kinds_of_tokens_change_nothing() -> None:
    given = Action(np.array(8.0), np.array(1.0), np.array([0.1, 0.4]), np.array([2.0, 2.0]))
    padded = Action(np.array(8.0), np.array(1.0), np.array([0.1, 0.4, 0.5]), np.array([2.0, 2.0, 0.0]))
    assert float(padded.energy(1.3, 0.4, 0.3)) == pytest.approx(float(given.energy(1.3, 0.4, 0.3)), rel=1e-14)


def test_models_without_a_theory_are_refused_by_name() -> None:
    task = CopyTask(5, 3)
    with pytest.raises(InvalidInput, match="`causal` must be False"):
        specification(Population(CopyTask(5, 3, causal=True), "linear"), "linear")
    with pytest.raises(InvalidInput, match="`causal` must be False with the prior RelativeBias"):
        specification(Population(CopyTask(5, 3, causal=True), prior=RelativeBias), "softmax")
    with pytest.raises(InvalidInput, match="`prior` must be IidLogits, got RelativeBias"):
        specification(Population(task, "linear", prior=RelativeBias), "linear")
    with pytest.raises(InvalidInput, match="`head_dimension` must be infinite: .* got 4"):
        specification(Population(task, prior=partial(HeadProduct, head_dimension=4)), "softmax")
    with pytest.raises(InvalidInput, match="`attention` must be 'linear', got 'softmax'"):
        specification(Population(task), "linear")


def test_only_fields_are_read() -> None:
    """A data set's posterior is placed like the population's."""
    task = CopyTask(5, 3)
    tokens = np.zeros((2, 5), dtype=int)
    of_data, of_population = specification(DataSet(tokens, task), "softmax"), specification(Population(task), "softmax")
    assert of_data[1:] == of_population[1:]
    jax.tree.map(np.testing.assert_array_equal, of_data.action, of_population.action)
