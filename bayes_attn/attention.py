"""Kinds of attention: how logits become weights, and the conventions that belong to each kind (theory, section 1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bayes_attn.errors import InvalidInput


def softmax(
    logits: Float[Array, "*batch query key"], visible: Bool[Array, "query key"]
) -> Float[Array, "*batch query key"]:
    """Softmax over the visible keys of each query; invisible keys get weight 0. Every query must see a key."""
    return jax.nn.softmax(jnp.where(visible, logits, -jnp.inf), axis=-1)


def linear(
    logits: Float[Array, "*batch query key"], visible: Bool[Array, "query key"]
) -> Float[Array, "*batch query key"]:
    """Linear attention: the logits themselves, with weight 0 on invisible keys."""
    return jnp.where(visible, logits, jnp.zeros_like(logits))


@dataclass(frozen=True)
class AttentionKind:
    """One kind of attention with its conventions."""

    weights: Callable[[Array, Array], Array]
    """(logits, visible) -> weights."""
    logit_variance: Callable[[float, int], float]
    """(logit_scale, length) -> prior variance of one i.i.d. logit."""
    copy_logit: Callable[[int], float]
    """length -> a logit on the copied key that gives it about two thirds of the weight or more: the hot start."""


ATTENTION_KINDS: dict[str, AttentionKind] = {
    "softmax": AttentionKind(
        weights=softmax,
        logit_variance=lambda logit_scale, _length: logit_scale**2,
        copy_logit=lambda length: math.log(4.0 * length),
    ),
    "linear": AttentionKind(
        weights=linear,
        logit_variance=lambda logit_scale, length: logit_scale**2 / length,
        copy_logit=lambda _length: 1.0,
    ),
}


def attention_kind(name: str) -> AttentionKind:
    """The kind called `name`.

    Raises
    ------
    InvalidInput: there is no such kind.
    """
    if name not in ATTENTION_KINDS:
        raise InvalidInput(f"attention: `attention` must be one of {', '.join(ATTENTION_KINDS)}, got {name!r}.")
    return ATTENTION_KINDS[name]
