import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_attn import CopyTask, DataSet, InvalidInput, Population
from bayes_attn.priors import IidLogits
from bayes_attn.theory.action import Action, specification


def test_the_action_is_minus_the_sampled_log_likelihood(key: jax.Array) -> None:
    """Theory and sampling share no code for U; here they meet."""
    for attention in ("softmax", "linear"):
        posterior = Population(CopyTask(6, 5), attention, value_scale=1.4)
        action, _ = specification(posterior, attention)
        for draw in jax.random.split(key, 3):
            params = posterior.sample_copy(draw)
            m, q, m_u, q_u = posterior.order_parameters(params)
            for load in map(jnp.asarray, (0.0, 0.3, 2.5)):
                energy = action.bulk(load, m, q) + action.uniform(load, m_u, q_u)
                np.testing.assert_allclose(-posterior.log_likelihood(params, load), energy, rtol=1e-12, atol=1e-12)


def test_conjugates_are_derivatives() -> None:
    action = Action(length=16, vocab=12, value_scale=0.8)
    load, m, q = (jnp.asarray(x) for x in (1.7, 0.3, 0.2))
    slope_m, slope_q = jax.grad(action.bulk, argnums=(1, 2))(load, m, q)
    assert float(action.conjugate_copy_mass(load, m, q)) == pytest.approx(-float(slope_m) / 16, rel=1e-12)
    assert float(action.conjugate_participation(load, m, q)) == pytest.approx(-float(slope_q) / 16, rel=1e-12)
    t = action.conjugate_copy_mass(load, m, q)
    assert float(action.load_of_conjugate(t, m, q)) == pytest.approx(float(load), rel=1e-12)


class OtherPrior(IidLogits):
    pass


def test_models_without_a_theory_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="`causal` must be False"):
        specification(Population(CopyTask(5, 3, causal=True)), "softmax")
    with pytest.raises(InvalidInput, match="`attention` must be 'linear', got 'softmax'"):
        specification(Population(CopyTask(5, 3)), "linear")


def test_only_fields_are_read() -> None:
    """A data set's posterior is placed like the population's."""
    task = CopyTask(5, 3)
    tokens = np.zeros((2, 5), dtype=int)
    assert specification(DataSet(tokens, task), "softmax") == specification(Population(task), "softmax")
