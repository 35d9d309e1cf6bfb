"""The action U: minus the population log-likelihood as a function of the order parameters (theory, section 3).

Written apart from `bayes_attn.posterior` on purpose: the two meet only in tests, which is what makes the agreement of
theory and sampling evidence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from bayes_attn.errors import InvalidInput
from bayes_attn.posterior import CopyPosterior
from bayes_attn.priors import IidLogits


@dataclass(frozen=True)
class Action:
    """U for i.i.d. uniform tokens, in nats (units of kT).

    Parameters
    ----------
    length: rows L of the attention matrix.
    vocab: V.
    value_scale: sigma_w.
    """

    length: int
    vocab: int
    value_scale: float

    def _direction(self, load: ArrayLike, overlap: ArrayLike, power: ArrayLike) -> Array:
        growth = 1 + jnp.multiply(load, power)
        return 0.5 * self.vocab * (jnp.log(growth) - (jnp.multiply(load, overlap) / self.value_scale) ** 2 / growth)

    def bulk(self, load: ArrayLike, copy_mass: ArrayLike, participation: ArrayLike) -> Float[Array, "..."]:
        """The V - 1 token directions orthogonal to the uniform one; 0 at load 0."""
        return (self.vocab - 1) * self._direction(load, copy_mass, participation)

    def uniform(self, load: ArrayLike, uniform_overlap: ArrayLike, row_power: ArrayLike) -> Float[Array, "..."]:
        """The uniform token direction: constant for softmax; 0 at load 0."""
        return self._direction(load, uniform_overlap, row_power)

    @property
    def stiffness(self) -> float:
        """V (V - 1) / L, the weight of the data against one row's entropy."""
        return self.vocab * (self.vocab - 1) / self.length

    def conjugate_copy_mass(
        self, load: ArrayLike, copy_mass: ArrayLike, participation: ArrayLike
    ) -> Float[Array, "..."]:
        """t = -(1/L) dU/dm (theory, section 4b)."""
        growth = 1 + jnp.multiply(load, participation)
        return self.stiffness * jnp.square(load) * copy_mass / (self.value_scale**2 * growth)

    def conjugate_participation(
        self, load: ArrayLike, copy_mass: ArrayLike, participation: ArrayLike
    ) -> Float[Array, "..."]:
        """u = -(1/L) dU/dq (theory, section 4b)."""
        growth = 1 + jnp.multiply(load, participation)
        signal = jnp.asarray(load) * (jnp.multiply(load, copy_mass) / (self.value_scale * growth)) ** 2
        return -0.5 * self.stiffness * (jnp.divide(load, growth) + signal)

    def load_of_conjugate(
        self, conjugate: ArrayLike, copy_mass: ArrayLike, participation: ArrayLike
    ) -> Float[Array, "..."]:
        """The load at which `conjugate_copy_mass` equals `conjugate`: the positive root of a quadratic."""
        drive = self.stiffness / self.value_scale**2 * jnp.asarray(copy_mass)
        linear = jnp.multiply(conjugate, participation)
        return (linear + jnp.sqrt(linear**2 + 4 * drive * conjugate)) / (2 * drive)


class Density(NamedTuple):
    """A density of the copy mass."""

    copy_mass: Float[np.ndarray, " point"]
    """m, increasing."""
    probability: Float[np.ndarray, " point"]
    """Per unit of m; its integral over m is 1."""

    def mean(self, of: Callable[[np.ndarray], np.ndarray] = lambda copy_mass: copy_mass) -> float:
        """Mean of a function of the copy mass; of the copy mass itself by default."""
        return float(np.trapezoid(of(self.copy_mass) * self.probability, self.copy_mass))


def specification(posterior: CopyPosterior, attention: str) -> tuple[Action, float]:
    """The action and the prior's standard deviation of a logit, read off a posterior's fields.

    Raises
    ------
    InvalidInput: there is no theory for this attention kind, prior or task.
    """
    if posterior.attention != attention:
        raise InvalidInput(f"theory.{attention}: `attention` must be {attention!r}, got {posterior.attention!r}.")
    if not isinstance(posterior.prior, IidLogits):
        raise InvalidInput(f"theory: `prior` must be IidLogits, got {type(posterior.prior).__name__}.")
    if posterior.task.causal:
        raise InvalidInput("theory: `causal` must be False (rows of a causal task differ), got True.")
    action = Action(posterior.task.length, posterior.task.vocab, posterior.value_scale)
    return action, posterior.prior.standard_deviation
