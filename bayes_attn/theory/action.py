"""The action U: minus the population log-likelihood as a function of the order parameters (theory, section 3).

Written apart from `bayes_attn.posterior` on purpose: the two meet only in tests, which is what makes the agreement of
theory and sampling evidence.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from bayes_attn.errors import InvalidInput
from bayes_attn.posterior import CopyPosterior
from bayes_attn.priors import HeadProduct, IidLogits, RelativeBias


class Action(eqx.Module):
    """U for i.i.d. tokens of any distribution, in nats (units of kT).

    With frequencies p, D = diag(p), M(a, b) = a (D - p p') + b p p', and all of them V x V,

        K = I + alpha V M(q, q_u),    U = 1/2 V log det K - 1/2 alpha^2 V^3 / sigma_w^2 tr M(m, m_u)^2 K^-1.

    Both matrices are diagonal up to rank one, so U is a few sums over the *different* frequencies: one term for uniform
    tokens. U is 0 at load 0. A pytree of arrays: everything here maps over settings by `jax.vmap`.
    """

    rows: Float[Array | np.ndarray, ""]
    """Independent rows of the attention matrix; the entropy of the order parameters is this many times one row's."""
    value_scale: Float[Array | np.ndarray, ""]
    """sigma_w."""
    frequency: Float[Array | np.ndarray, " kind"]
    """The different token frequencies."""
    multiplicity: Float[Array | np.ndarray, " kind"]
    """How many tokens have each of them."""

    @property
    def vocab(self) -> Float[Array, ""]:
        """V."""
        return jnp.sum(jnp.asarray(self.multiplicity))

    def _total(self, of: Array) -> Array:
        return jnp.sum(jnp.asarray(self.multiplicity) * of, axis=-1)

    def parts(
        self,
        load: ArrayLike,
        copy_mass: ArrayLike,
        participation: ArrayLike,
        uniform_overlap: ArrayLike = 1.0,
        row_power: ArrayLike = 1.0,
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """(complexity, signal) with U = complexity - signal: the log-determinant and the fit of the targets.

        The last two order parameters are 1 for softmax.
        """
        load, m, q = jnp.asarray(load), jnp.asarray(copy_mass), jnp.asarray(participation)
        p, vocab = jnp.asarray(self.frequency), self.vocab
        growth = 1 + (load * vocab * q)[..., None] * p
        extra, rest = load * vocab * (row_power - q), uniform_overlap - m
        squares = self._total(p**2)
        solved = p / growth
        overlap = self._total(p * solved)
        rank_one = 1 + extra * overlap
        complexity = 0.5 * vocab * (self._total(jnp.log(growth)) + jnp.log(rank_one))
        diagonal = (
            m**2 * self._total(p**2 / growth)
            + 2 * m * rest * self._total(p**3 / growth)
            + rest**2 * squares * self._total(p**2 / growth)
        )
        correction = (
            m**2 * self._total((p * solved) ** 2)
            + 2 * m * rest * overlap * self._total(p**2 * solved)
            + rest**2 * overlap**2 * squares
        )
        strength = 0.5 * load**2 * vocab**3 / jnp.asarray(self.value_scale) ** 2
        return complexity, strength * (diagonal - extra / rank_one * correction)

    def energy(self, load: ArrayLike, *order_parameters: ArrayLike) -> Float[Array, "..."]:
        """U; arguments as `parts`."""
        complexity, signal = self.parts(load, *order_parameters)
        return complexity - signal

    def conjugates(
        self, load: Float[Array, ""], copy_mass: Float[Array, ""], participation: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(t, u) = -(1/rows) (dU/dm, dU/dq) of softmax attention (theory, section 4b); t > 0 > u at load > 0."""
        by_m, by_q = jax.grad(self.energy, argnums=(1, 2))(load, copy_mass, participation)
        return -by_m / self.rows, -by_q / self.rows


class Density(NamedTuple):
    """A density of the copy mass."""

    copy_mass: Float[np.ndarray, " point"]
    """m, increasing."""
    probability: Float[np.ndarray, " point"]
    """Per unit of m; its integral over m is 1."""

    def mean(self, of: Callable[[np.ndarray], np.ndarray] = lambda copy_mass: copy_mass) -> float:
        """Mean of a function of the copy mass; of the copy mass itself by default."""
        return float(np.trapezoid(of(self.copy_mass) * self.probability, self.copy_mass))


class Specification(NamedTuple):
    """What the theory reads off a posterior's fields."""

    action: Action
    length: int
    standard_deviation: float
    """Of one logit under the prior."""
    causal: bool
    shared: bool
    """One row's logits shared by all rows (`RelativeBias`)."""


def specification(posterior: CopyPosterior, attention: str) -> Specification:
    """The posterior as the theory sees it; its densities are never called.

    Raises
    ------
    InvalidInput: there is no theory for this attention kind, prior or task.
    """
    task, prior = posterior.task, posterior.prior
    if posterior.attention != attention:
        raise InvalidInput(f"theory.{attention}: `attention` must be {attention!r}, got {posterior.attention!r}.")
    if isinstance(prior, HeadProduct):
        rule = "must be infinite: a theory exists only in that limit, which is the prior IidLogits"
        raise InvalidInput(f"theory: `head_dimension` {rule}, got {prior.head_dimension}.")
    if not isinstance(prior, IidLogits | RelativeBias):
        raise InvalidInput(f"theory: `prior` must be IidLogits or RelativeBias, got {type(prior).__name__}.")
    shared = isinstance(prior, RelativeBias)
    if attention == "linear" and shared:
        raise InvalidInput("theory.linear: `prior` must be IidLogits, got RelativeBias.")
    if attention == "linear" and task.causal:
        raise InvalidInput("theory.linear: `causal` must be False (rows of a causal task differ), got True.")
    if shared and task.causal:
        raise InvalidInput("theory: `causal` must be False with the prior RelativeBias (its rows differ), got True.")
    frequency, multiplicity = np.unique(task.token_frequencies, return_counts=True)
    rows = 1.0 if shared else float(task.num_targets)
    action = Action(np.array(rows), np.array(posterior.value_scale), frequency, multiplicity.astype(float))
    return Specification(action, task.length, prior.standard_deviation, task.causal, shared)
