"""The joint posterior over attention and value matrix: what training descends (theory, sections 2 and 8)."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from bayes_attn.order_parameters import OrderParameters
from bayes_attn.posterior import CopyPosterior
from bayes_attn.priors import log_normal


class JointParameters(NamedTuple):
    """Of the joint posterior."""

    attention: PyTree
    """As the prior over the logits has them: the logits, or the head's queries and keys."""
    value: Float[Array, "vocab vocab"]
    """W: row v is the output for token v."""


class Joint(eqx.Module):
    """The posterior over attention and value matrix together; its marginal over the attention is `collapsed`.

    This is the density that training descends (theory, sections 2 and 8). With a `HeadProduct` prior the parameters are
    a head's W_Q and W_K (queries and keys by position) and W.

    Parameters
    ----------
    collapsed: the posterior with the value matrix integrated out.
    """

    collapsed: CopyPosterior

    @property
    def size(self) -> int:
        """As the collapsed posterior's."""
        return self.collapsed.size

    @property
    def value_deviation(self) -> float:
        """Prior standard deviation of an entry of W."""
        return self.collapsed.value_scale / math.sqrt(self.collapsed.task.vocab)

    def at_load(self, load: Float[Array, ""]) -> "Joint":
        """This posterior at one load; what depends on the data is worked out once."""
        at_load = getattr(self.collapsed, "at_load", None)
        return self if at_load is None else Joint(at_load(load))

    def check_load(self, load: float) -> None:
        """As `DataSet.check_load`."""
        check_load = getattr(self.collapsed, "check_load", None)
        if check_load is not None:
            check_load(load)

    def _draw_value(self, key: PRNGKeyArray) -> Float[Array, "vocab vocab"]:
        vocab = self.collapsed.task.vocab
        return self.value_deviation * jax.random.normal(key, (vocab, vocab))

    def sample_prior(self, key: PRNGKeyArray) -> JointParameters:
        """An exact prior draw (the cold start)."""
        attention_key, value_key = jax.random.split(key)
        return JointParameters(self.collapsed.sample_prior(attention_key), self._draw_value(value_key))

    def sample_copy(self, key: PRNGKeyArray) -> JointParameters:
        """The collapsed posterior's hot start, with the value matrix that returns the attended token."""
        return JointParameters(self.collapsed.sample_copy(key), jnp.eye(self.collapsed.task.vocab))

    def best_value(self, attention: PyTree, load: Float[Array, ""]) -> Float[Array, "vocab vocab"]:
        """The value matrix of highest density at given attention parameters: (lambda I + G)^-1 C."""
        moments = self.collapsed.moments(attention, load)
        ridge = self.collapsed.noise / self.value_deviation**2
        eye = jnp.eye(self.collapsed.task.vocab, dtype=moments.gram.dtype)
        return jnp.linalg.solve(ridge * eye + moments.gram, moments.cross)

    def log_prior(self, params: JointParameters) -> Float[Array, ""]:
        return self.collapsed.log_prior(params.attention) + log_normal(params.value, self.value_deviation)

    def log_likelihood(self, params: JointParameters, load: Float[Array, ""]) -> Float[Array, ""]:
        """-|Y - Phi W|^2 / (2 kappa), in nats; the likelihood's constant is left out."""
        moments = self.collapsed.moments(params.attention, load)
        return -moments.squared_error(params.value) / (2 * self.collapsed.noise)

    def sequence_log_likelihood(self, params: JointParameters, tokens: Int[Array, " position"]) -> Float[Array, ""]:
        """Of one sequence, without count tensor; summed over the sequences of a data set it is `log_likelihood`."""
        task = self.collapsed.task
        weights = self.collapsed.weights(params.attention)[task.queries]
        targets = jax.nn.one_hot(tokens[task.sources], task.vocab, dtype=params.value.dtype)
        error = jnp.sum(jnp.square(targets - weights @ params.value[tokens]))
        return -error / (2 * self.collapsed.noise)

    def order_parameters(self, params: JointParameters) -> OrderParameters:
        return self.collapsed.order_parameters(params.attention)
