"""Posteriors over the attention matrix, with the value matrix integrated out: the first narrow waist.

Everything that samples, trains or judges knows only the `Posterior` contract, so a user's own posterior goes through
the same engine.
"""

import abc
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from bayes_attn.attention import attention_kind
from bayes_attn.errors import InvalidInput, require, require_positive
from bayes_attn.order_parameters import OrderParameters, measure
from bayes_attn.priors import IidLogits, Prior
from bayes_attn.tasks import CopyTask, count_tensor

Scalar = TypeVar("Scalar", float, Array)
"""A number on the host, or one inside a trace."""


@runtime_checkable
class Posterior(Protocol):
    """The contract. `params` is any pytree of arrays; densities are in nats and for one point (the caller maps)."""

    @property
    def size(self) -> int:
        """The extensive factor of a field: a field h adds size * h * (first order parameter) to the log-density."""
        ...

    def sample_prior(self, key: PRNGKeyArray) -> PyTree:
        """An exact prior draw."""
        ...

    def log_prior(self, params: PyTree) -> Float[Array, ""]: ...

    def log_likelihood(self, params: PyTree, load: Float[Array, ""]) -> Float[Array, ""]:
        """At a data amount `load`, any real number of at least 0; exactly 0 data must give a constant."""
        ...

    def order_parameters(self, params: PyTree) -> tuple[Array, ...]:
        """A NamedTuple of scalars; a field couples to the first one."""
        ...


class Moments(NamedTuple):
    """All that a quadratic loss needs to know of the data, given attention weights (theory, section 2)."""

    gram: Float[Array, "vocab vocab"]
    """G = Phi' Phi of the attended tokens."""
    cross: Float[Array, "vocab vocab"]
    """C = Phi' Y with the targets."""
    targets: Float[Array, ""]
    """Their number, which is tr Y' Y."""

    def squared_error(self, value: Float[Array, "vocab vocab"]) -> Float[Array, ""]:
        """|Y - Phi W|^2, summed over targets and outputs."""
        return self.targets - 2 * jnp.sum(self.cross * value) + jnp.sum(value * (self.gram @ value))


def average_moments(task: CopyTask, order: OrderParameters, targets: Float[Array, ""]) -> Moments:
    """The moments of that many targets, averaged over sequences of i.i.d. tokens (theory, section 3)."""
    frequencies = jnp.asarray(task.token_frequencies, dtype=order.copy_mass.dtype)
    mean = jnp.outer(frequencies, frequencies)
    covariance = jnp.diag(frequencies) - mean
    gram = targets * (order.participation * covariance + order.row_power * mean)
    cross = targets * (order.copy_mass * covariance + order.uniform_overlap * mean)
    return Moments(gram, cross, targets)


class CopyPosterior(eqx.Module):
    """What the posteriors of the copy task share: the model, the order parameters, and load <-> data.

    Parameters
    ----------
    task: the copy task.
    attention: "softmax" or "linear".
    prior: kind of prior over the logits, made from (length, standard deviation of a logit): `IidLogits`,
        `RelativeBias`, or partial(HeadProduct, head_dimension=...). Default: i.i.d.
    logit_scale: sigma_s.
    value_scale: sigma_w; the value matrix has entries N(0, sigma_w^2 / V).
    noise: kappa, the variance of the Gaussian likelihood per output entry.
    """

    task: CopyTask = eqx.field(static=True)
    attention: str = eqx.field(static=True)
    prior: Prior
    logit_scale: float = eqx.field(static=True)
    value_scale: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)

    def __init__(
        self,
        task: CopyTask,
        attention: str,
        logit_scale: float,
        value_scale: float,
        noise: float,
        prior: Callable[[int, float], Prior] = IidLogits,
    ) -> None:
        owner = type(self).__name__
        require(isinstance(task, CopyTask), owner, "task", "must be a CopyTask", task)
        kind = attention_kind(attention)
        require_positive(owner, "logit_scale", logit_scale)
        require_positive(owner, "value_scale", value_scale)
        require_positive(owner, "noise", noise)
        self.task = task
        self.attention = attention
        self.prior = prior(task.length, math.sqrt(kind.logit_variance(float(logit_scale), task.length)))
        self.logit_scale = float(logit_scale)
        self.value_scale = float(value_scale)
        self.noise = float(noise)

    @property
    def size(self) -> int:
        """Queries with a target: L for the ring."""
        return self.task.num_targets

    def load(self, num_sequences: Scalar) -> Scalar:
        """Dimensionless load alpha of a data amount P (theory, section 1)."""
        return num_sequences * self.size * self.value_scale**2 / (self.noise * self.task.vocab**2)

    def num_sequences(self, load: Scalar) -> Scalar:
        """Data amount P, in sequences, of a load alpha."""
        return load * self.noise * self.task.vocab**2 / (self.size * self.value_scale**2)

    def weights(self, params: PyTree) -> Float[Array, "query key"]:
        """The attention matrix A."""
        kind = attention_kind(self.attention)
        return kind.weights(self.prior.logits(params), jnp.asarray(self.task.visible))

    def sample_prior(self, key: PRNGKeyArray) -> PyTree:
        """An exact prior draw (the cold start)."""
        return self.prior.sample(key)

    def log_prior(self, params: PyTree) -> Float[Array, ""]:
        return self.prior.log_density(params)

    @abc.abstractmethod
    def log_likelihood(self, params: PyTree, load: Float[Array, ""]) -> Float[Array, ""]:
        """See `Posterior`."""

    @abc.abstractmethod
    def moments(self, params: PyTree, load: Float[Array, ""]) -> Moments:
        """What the data tell the value matrix at these attention weights; linear in the data."""

    def order_parameters(self, params: PyTree) -> OrderParameters:
        return measure(self.weights(params), jnp.asarray(self.task.queries), jnp.asarray(self.task.sources))

    def sample_copy(self, key: PRNGKeyArray) -> PyTree:
        """A prior draw with the copy pattern planted on it (the hot start)."""
        copy_logit = attention_kind(self.attention).copy_logit(self.task.length)
        return self.prior.plant(self.prior.sample(key), self.task.queries, self.task.sources, copy_logit)


class Population(CopyPosterior):
    """The posterior under data-averaged statistics; a function of the four order parameters (theory, section 3).

    Tokens are i.i.d. with the task's frequencies. The log-likelihood is -U, which is 0 at load 0. Parameters as
    `CopyPosterior`.
    """

    def __init__(
        self,
        task: CopyTask,
        attention: str = "softmax",
        logit_scale: float = 1.0,
        value_scale: float = 1.0,
        noise: float = 1.0,
        prior: Callable[[int, float], Prior] = IidLogits,
    ) -> None:
        super().__init__(task, attention, logit_scale, value_scale, noise, prior)

    def log_likelihood(self, params: PyTree, load: Float[Array, ""]) -> Float[Array, ""]:
        """-U(m, q, m_u, q_u) at load alpha, in nats."""
        return self.log_likelihood_from(self.order_parameters(params), load)

    def moments(self, params: PyTree, load: Float[Array, ""]) -> Moments:
        """Averaged over data sets (theory, section 3)."""
        order = self.order_parameters(params)
        targets = jnp.asarray(self.num_sequences(load) * self.size, dtype=order.copy_mass.dtype)
        return average_moments(self.task, order, targets)

    def log_likelihood_from(self, order: OrderParameters, load: Float[Array, ""]) -> Float[Array, ""]:
        """The log-likelihood as the function of the order parameters that it is.

        Optional in the contract: where a posterior has it, every scan of a run can be reweighted to other controls.
        """
        vocab, ratio = self.task.vocab, jnp.square(load) / self.value_scale**2
        if self.task.frequencies is not None:
            frequencies = jnp.asarray(self.task.frequencies)
            mean = jnp.outer(frequencies, frequencies)
            covariance = jnp.diag(frequencies) - mean
            gram = load * vocab * (order.participation * covariance + order.row_power * mean)
            cross = order.copy_mass * covariance + order.uniform_overlap * mean
            factor = jnp.linalg.cholesky(jnp.eye(vocab) + gram)
            whitened = jax.scipy.linalg.solve_triangular(factor, cross, lower=True)
            log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
            return -0.5 * vocab * (log_det - ratio * vocab**2 * jnp.sum(jnp.square(whitened)))

        def direction(overlap: Array, power: Array) -> Array:
            growth = 1 + load * power
            return jnp.log(growth) - ratio * jnp.square(overlap) / growth

        bulk = direction(order.copy_mass, order.participation)
        uniform = direction(order.uniform_overlap, order.row_power)
        return -0.5 * vocab * ((vocab - 1) * bulk + uniform)


class DataSet(CopyPosterior):
    """The posterior given token sequences, through their count tensor (theory, section 2).

    Parameters
    ----------
    tokens: integers of shape (P, L), each from 0 to V - 1.
    prefixes: increasing data amounts at which T is stored, the last at most P. Between them (and between 0 and the
        first) T is interpolated linearly, which makes the load a continuous control. Default: at most 16 of them,
        equally spaced up to P.
    others: as `CopyPosterior`.

    Raises
    ------
    InvalidInput: a parameter breaks its rule, or JAX is not in double precision.
    """

    prefixes: Float[Array, " knot"]
    counts: Float[Array, "knot token_pair position_pair"]
    """T at each prefix as a matrix: (v, w) by (j, k), so that both contractions are matrix products."""

    def __init__(
        self,
        tokens: np.ndarray | Array,
        task: CopyTask,
        attention: str = "softmax",
        logit_scale: float = 1.0,
        value_scale: float = 1.0,
        noise: float = 1.0,
        prefixes: list[int] | np.ndarray | None = None,
        prior: Callable[[int, float], Prior] = IidLogits,
    ) -> None:
        super().__init__(task, attention, logit_scale, value_scale, noise, prior)
        # The evidence grows with P and its dependence on A does not: single precision rounds it away.
        precise = jnp.zeros(()).dtype == jnp.float64
        rule = 'must be True (jax.config.update("jax_enable_x64", True)) for the evidence of a data set'
        require(precise, "DataSet", "jax_enable_x64", rule, precise)
        tokens = task.check_tokens(np.asarray(tokens), owner="DataSet")
        available = len(tokens)
        if prefixes is None:
            prefixes = np.unique(np.round(np.linspace(0, available, min(available, 16) + 1)[1:]).astype(int))
        prefixes = np.asarray(prefixes)
        increasing = prefixes.ndim == 1 and prefixes.size > 0 and bool(np.all(np.diff(prefixes, prepend=0) > 0))
        if not increasing or not np.issubdtype(prefixes.dtype, np.integer) or prefixes[-1] > available:
            rule = f"must be increasing positive integers up to the {available} sequences at hand"
            raise InvalidInput(f"DataSet: `prefixes` {rule}, got {prefixes.tolist()}.")
        knots = np.concatenate([[0], prefixes])
        self.prefixes = jnp.asarray(knots, dtype=float)
        counts = count_tensor(tokens, task.vocab, knots).transpose(0, 2, 4, 1, 3)
        self.counts = jnp.asarray(counts.reshape(len(knots), task.vocab**2, task.length**2))

    def at_load(self, load: Float[Array, ""]) -> "DataSetAtLoad":
        """This posterior at one load, with T interpolated once instead of at every evaluation.

        Loads beyond the last stored prefix are refused by `check_load` on the host; inside a trace they are cut there.
        """
        num_sequences = jnp.clip(self.num_sequences(load), 0, self.prefixes[-1])
        knot = jnp.clip(jnp.searchsorted(self.prefixes, num_sequences, side="right"), 1, len(self.prefixes) - 1)
        low, high = self.prefixes[knot - 1], self.prefixes[knot]
        fraction = (num_sequences - low) / (high - low)
        counts = (1 - fraction) * self.counts[knot - 1] + fraction * self.counts[knot]
        return DataSetAtLoad(self, counts, num_sequences)

    def log_likelihood(self, params: PyTree, load: Float[Array, ""]) -> Float[Array, ""]:
        """log p(targets | A) of the first P(load) sequences, with the value matrix integrated out, in nats."""
        return self.at_load(load).log_likelihood(params, load)

    def moments(self, params: PyTree, load: Float[Array, ""]) -> Moments:
        """Of the first P(load) sequences."""
        return self.at_load(load).moments(params, load)

    def check_load(self, load: float) -> None:
        """Refuse a load that asks for more sequences than there are."""
        available = float(self.prefixes[-1])
        rule = f"must ask for at most the {available:g} sequences at hand (load {self.load(available):.4g})"
        require(0 <= self.num_sequences(load) <= available * (1 + 1e-12), "DataSet", "load", rule, load)


class DataSetAtLoad(CopyPosterior):
    """A `DataSet` posterior at one load; made by `DataSet.at_load`."""

    counts: Float[Array, "token_pair position_pair"]
    amount: Float[Array, ""]
    """Data amount P, in sequences."""

    def __init__(
        self, data_set: DataSet, counts: Float[Array, "token_pair position_pair"], amount: Float[Array, ""]
    ) -> None:
        self.task, self.attention, self.prior = data_set.task, data_set.attention, data_set.prior
        self.logit_scale, self.value_scale, self.noise = data_set.logit_scale, data_set.value_scale, data_set.noise
        self.counts, self.amount = counts, amount

    def log_likelihood(self, params: PyTree, load: Float[Array, ""]) -> Float[Array, ""]:
        """As `DataSet.log_likelihood` at the load it was made for, whatever `load` says; V x V algebra only."""
        gram, cross, targets = self.moments(params, load)
        vocab, ridge = self.task.vocab, self.noise * self.task.vocab / self.value_scale**2
        factor = jnp.linalg.cholesky(ridge * jnp.eye(vocab, dtype=gram.dtype) + gram)
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) - vocab * math.log(ridge)
        whitened = jax.scipy.linalg.solve_triangular(factor, cross, lower=True)
        normalisation = targets * vocab * math.log(2 * math.pi * self.noise)
        residual = (targets - jnp.sum(jnp.square(whitened))) / self.noise
        return -0.5 * (vocab * log_det + normalisation + residual)

    def moments(self, params: PyTree, load: Float[Array, ""]) -> Moments:
        """As `DataSet.moments` at the load it was made for, whatever `load` says."""
        del load
        task, weights = self.task, self.weights(params)
        rows = weights[task.queries]
        # Column k of `transfer` collects the query whose source is k; a key that is nobody's source stays 0.
        transfer = jnp.zeros_like(weights).at[:, task.sources].set(rows.T)
        gram, cross = self.counts @ (rows.T @ rows).ravel(), self.counts @ transfer.ravel()
        shape = (task.vocab, task.vocab)
        return Moments(gram.reshape(shape), cross.reshape(shape), self.amount * self.size)
