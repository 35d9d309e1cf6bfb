"""The mean-field Ising model (Curie and Weiss) through the posterior contract: a second-order transition at beta = 1.

As `potts.py`, with one field y ~ N(0, 1): the sum over spins gives the log-likelihood N log cosh(sqrt(beta / N) y).
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class Magnetisation(NamedTuple):
    field: jax.Array
    """y / sqrt(N): beta^(-1/2) times a magnetisation per spin, up to fluctuations of order N^(-1/2)."""


class Ising(eqx.Module):
    spins: jax.Array = eqx.field(converter=jnp.asarray)
    """An array, so that all sizes share one compiled run."""

    @property
    def size(self) -> jax.Array:
        return self.spins

    def sample_prior(self, key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (1,))

    def sample_ordered(self, key: jax.Array) -> jax.Array:
        return jnp.sqrt(self.spins) + jax.random.normal(key, (1,))

    def log_prior(self, params: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(params**2) - 0.5 * math.log(2 * math.pi)

    def log_likelihood(self, params: jax.Array, load: jax.Array) -> jax.Array:
        scaled = jnp.abs(jnp.sqrt(load / self.spins) * params[0])
        return self.spins * (scaled + jnp.log1p(jnp.exp(-2 * scaled)) - math.log(2))

    def order_parameters(self, params: jax.Array) -> Magnetisation:
        return Magnetisation(params[0] / jnp.sqrt(self.spins))

    def density(self, beta: float, points: int = 4001) -> tuple[np.ndarray, np.ndarray]:
        """(y / sqrt(N), its exact density), on a grid."""
        grid = np.linspace(-2.5, 2.5, points)
        spins = float(self.spins)
        scaled = np.abs(np.sqrt(beta) * grid)
        log_density = spins * (scaled + np.log1p(np.exp(-2 * scaled))) - 0.5 * spins * grid**2
        density = np.exp(log_density - log_density.max())
        return grid, density / np.trapezoid(density, grid)
