import jax.numpy as jnp
import numpy as np
import pytest

from bayes_attn import CopyTask, InvalidInput
from bayes_attn.attention import ATTENTION_KINDS, attention_kind


@pytest.mark.parametrize("name", ATTENTION_KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_invisible_keys_get_no_weight(name: str, causal: bool, random_numbers: np.random.Generator) -> None:
    visible = CopyTask(6, 2, causal=causal).visible
    weights = attention_kind(name).weights(jnp.asarray(random_numbers.normal(size=(6, 6))), jnp.asarray(visible))
    assert np.all(np.asarray(weights)[~visible] == 0)
    assert np.all(np.asarray(weights)[visible] != 0)


def test_softmax_rows_are_normalised_exponentials(random_numbers: np.random.Generator) -> None:
    logits = random_numbers.normal(size=(4, 4)) * 100
    weights = attention_kind("softmax").weights(jnp.asarray(logits), jnp.ones((4, 4), bool))
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(weights, shifted / shifted.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("name", ATTENTION_KINDS)
@pytest.mark.parametrize("length", [3, 16, 128])
def test_copy_logit_places_most_of_the_weight(name: str, length: int) -> None:
    kind = attention_kind(name)
    logits = jnp.zeros((length, length)).at[:, 0].set(kind.copy_logit(length))
    assert float(kind.weights(logits, jnp.ones((length, length), bool))[0, 0]) > 2 / 3


def test_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"`attention` must be one of softmax, linear, got 'cosine'"):
        attention_kind("cosine")
