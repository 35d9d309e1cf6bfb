"""Priors over attention logits: an exact draw, a log-density, and the map from parameters to logits."""

import math
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from bayes_attn.errors import require_integer, require_positive


class Prior(Protocol):
    """What a prior over logits offers; `params` is any pytree of arrays."""

    def sample(self, key: PRNGKeyArray) -> PyTree: ...
    def log_density(self, params: PyTree) -> Array: ...
    def logits(self, params: PyTree) -> Array: ...


class IidLogits(eqx.Module):
    """Independent logits S_ij ~ N(0, standard_deviation^2); the parameters are the logits themselves.

    Parameters
    ----------
    length: positions L, at least 3.
    standard_deviation: of one logit, positive. Each kind of attention has its convention for it
        (`AttentionKind.logit_variance`); the posteriors apply it when given a `logit_scale`.
    """

    length: int = eqx.field(static=True)
    standard_deviation: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_integer("IidLogits", "length", self.length, least=3)
        require_positive("IidLogits", "standard_deviation", self.standard_deviation)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "query key"]:
        """An exact draw."""
        return self.standard_deviation * jax.random.normal(key, (self.length, self.length))

    def log_density(self, params: Float[Array, "query key"]) -> Float[Array, ""]:
        """Normalised log-density, in nats."""
        constant = self.length**2 * math.log(self.standard_deviation * math.sqrt(2 * math.pi))
        return -0.5 * jnp.sum(jnp.square(params / self.standard_deviation)) - constant

    def logits(self, params: Float[Array, "query key"]) -> Float[Array, "query key"]:
        """The logits that the parameters stand for."""
        return params
