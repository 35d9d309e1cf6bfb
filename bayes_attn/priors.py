"""Priors over attention logits: an exact draw, a log-density, and the map from parameters to logits."""

import math
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from bayes_attn.errors import require_integer, require_positive


class Prior(Protocol):
    """What a prior over logits offers; `params` is any pytree of arrays."""

    def sample(self, key: PRNGKeyArray) -> PyTree: ...
    def log_density(self, params: PyTree) -> Array: ...
    def logits(self, params: PyTree) -> Array: ...
    def plant(
        self, params: PyTree, queries: Int[np.ndarray, " target"], sources: Int[np.ndarray, " target"], logit: float
    ) -> PyTree: ...


def log_normal(values: Float[Array, "..."], standard_deviation: float) -> Float[Array, ""]:
    """Log-density of independent normals, summed, in nats."""
    constant = values.size * math.log(standard_deviation * math.sqrt(2 * math.pi))
    return -0.5 * jnp.sum(jnp.square(values / standard_deviation)) - constant


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
        return log_normal(params, self.standard_deviation)

    def logits(self, params: Float[Array, "query key"]) -> Float[Array, "query key"]:
        """The logits that the parameters stand for."""
        return params

    def plant(
        self,
        params: Float[Array, "query key"],
        queries: Int[np.ndarray, " target"],
        sources: Int[np.ndarray, " target"],
        logit: float,
    ) -> Float[Array, "query key"]:
        """`params` with the given logit on every copied key."""
        return params.at[queries, sources].set(logit)


class RelativeBias(eqx.Module):
    """One bias per distance, shared by all rows: S_ij = b_((i - j) mod L), b ~ N(0, standard_deviation^2).

    Parameters as `IidLogits`; the parameters of a draw are the L biases.
    """

    length: int = eqx.field(static=True)
    standard_deviation: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_integer("RelativeBias", "length", self.length, least=3)
        require_positive("RelativeBias", "standard_deviation", self.standard_deviation)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " distance"]:
        """An exact draw."""
        return self.standard_deviation * jax.random.normal(key, (self.length,))

    def log_density(self, params: Float[Array, " distance"]) -> Float[Array, ""]:
        """Normalised log-density, in nats."""
        return log_normal(params, self.standard_deviation)

    def logits(self, params: Float[Array, " distance"]) -> Float[Array, "query key"]:
        """The logits that the parameters stand for."""
        position = np.arange(self.length)
        return params[(position[:, None] - position) % self.length]

    def plant(
        self,
        params: Float[Array, " distance"],
        queries: Int[np.ndarray, " target"],
        sources: Int[np.ndarray, " target"],
        logit: float,
    ) -> Float[Array, " distance"]:
        """`params` with the given logit at the distance of the copied key."""
        return params.at[np.unique((queries - sources) % self.length)].set(logit)


class HeadProduct(eqx.Module):
    """Logits of an attention head, S = scale Q K' / sqrt(d) with i.i.d. standard normal Q, K of shape (L, d).

    The logits have variance standard_deviation^2 and become independent normals as d grows.

    Parameters
    ----------
    length, standard_deviation: as `IidLogits`.
    head_dimension: d, at least 1.
    """

    length: int = eqx.field(static=True)
    standard_deviation: float = eqx.field(static=True)
    head_dimension: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_integer("HeadProduct", "length", self.length, least=3)
        require_positive("HeadProduct", "standard_deviation", self.standard_deviation)
        require_integer("HeadProduct", "head_dimension", self.head_dimension, least=1)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "two position head"]:
        """An exact draw of (Q, K)."""
        return jax.random.normal(key, (2, self.length, self.head_dimension))

    def log_density(self, params: Float[Array, "two position head"]) -> Float[Array, ""]:
        """Normalised log-density, in nats."""
        return log_normal(params, 1.0)

    def logits(self, params: Float[Array, "two position head"]) -> Float[Array, "query key"]:
        """The logits that the parameters stand for."""
        queries, keys = params
        return self.standard_deviation / math.sqrt(self.head_dimension) * queries @ keys.T

    def plant(
        self,
        params: Float[Array, "two position head"],
        queries: Int[np.ndarray, " target"],
        sources: Int[np.ndarray, " target"],
        logit: float,
    ) -> Float[Array, "two position head"]:
        """`params` with queries turned towards the copied keys, so that those get about the given logit.

        A query is moved along its key's direction alone; keys are as drawn, so other logits stay near their size.
        """
        query, key = params[0][queries], params[1][sources]
        at_present = self.standard_deviation / math.sqrt(self.head_dimension) * jnp.sum(query * key, -1, keepdims=True)
        per_key = self.standard_deviation / math.sqrt(self.head_dimension) * jnp.sum(key**2, -1, keepdims=True)
        return params.at[0, queries].set(query + (logit - at_present) / per_key * key)
