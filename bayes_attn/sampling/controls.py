"""A point in control space, the density there, and paths of such points."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from bayes_attn.errors import InvalidInput
from bayes_attn.posterior import Posterior


class Controls(NamedTuple):
    """Where in (inverse temperature, load, field) a density is taken; arrays of one shape make a path."""

    inverse_temperature: Float[Array, "*rung"]
    """beta: multiplies the log-likelihood only; the prior is never tempered."""
    load: Float[Array, "*rung"]
    """Data amount, at least 0."""
    field: Float[Array, "*rung"]
    """h: adds size * h * (first order parameter)."""


def load_ladder(loads: list[float] | np.ndarray) -> Controls:
    """A path along the data amount at inverse temperature 1 and no field.

    Raises
    ------
    InvalidInput: fewer than two loads, a negative or non-finite one, or loads that do not increase.
    """
    array = np.asarray(loads, dtype=float)
    good = array.ndim == 1 and len(array) >= 2 and np.all(np.isfinite(array)) and array[0] >= 0
    if not good or np.any(np.diff(array) <= 0):
        raise InvalidInput(f"load_ladder: `loads` must be two or more increasing numbers of at least 0, got {loads}.")
    return Controls(jnp.ones(len(array)), jnp.asarray(array), jnp.zeros(len(array)))


def log_density(posterior: Posterior, params: PyTree, controls: Controls) -> Float[Array, ""]:
    """log_prior + beta * log_likelihood(load) + size * field * (first order parameter), in nats."""
    likelihood = controls.inverse_temperature * posterior.log_likelihood(params, controls.load)
    tempered = jnp.where(controls.inverse_temperature == 0, 0.0, likelihood)
    coupling = posterior.size * controls.field * posterior.order_parameters(params)[0]
    return posterior.log_prior(params) + tempered + coupling


def conditioned(posterior: Posterior, path: Controls) -> tuple[Posterior, int | None]:
    """The posterior at each rung's load, and the axis to map it over (None if it is one for all).

    A posterior may offer `at_load(load)`, which returns a posterior with everything that depends on the load alone
    computed once; here this is done for a whole path, outside all loops.
    """
    at_load = getattr(posterior, "at_load", None)
    return (posterior, None) if at_load is None else (jax.vmap(at_load)(path.load), 0)


def is_prior(controls: Controls) -> Array:
    """Where the density is the prior itself, so that an exact draw can replace exploration."""
    return ((controls.inverse_temperature == 0) | (controls.load == 0)) & (controls.field == 0)
