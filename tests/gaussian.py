"""A posterior of somebody else's, with every answer in closed form: a conjugate Gaussian off centre.

Prior N(0, 1) per coordinate; log-likelihood -(load / 2) sum (x - center)^2 / width^2. At inverse temperature 1 and
field h the posterior is a product of normals; nothing here is symmetric, so that a sign error shows.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class Coordinates(NamedTuple):
    mean_coordinate: jax.Array
    first: jax.Array


class Gaussian(eqx.Module):
    dimension: int = eqx.field(static=True, default=3)
    center: float | jax.Array = 1.5
    width: float | jax.Array = 0.5

    @property
    def size(self) -> int:
        return self.dimension

    def sample_prior(self, key: jax.Array) -> dict[str, jax.Array]:
        return {"x": jax.random.normal(key, (self.dimension,))}

    def log_prior(self, params: dict[str, jax.Array]) -> jax.Array:
        return -0.5 * jnp.sum(params["x"] ** 2) - 0.5 * self.dimension * np.log(2 * np.pi)

    def log_likelihood(self, params: dict[str, jax.Array], load: jax.Array) -> jax.Array:
        return -0.5 * load * jnp.sum((params["x"] - self.center) ** 2) / self.width**2

    def order_parameters(self, params: dict[str, jax.Array]) -> Coordinates:
        return Coordinates(params["x"].mean(), params["x"][0])

    def log_evidence(self, load: np.ndarray) -> np.ndarray:
        """Log of the integral of prior times likelihood."""
        precision = 1 + load / self.width**2
        per_coordinate = -0.5 * np.log(precision) - 0.5 * (precision - 1) * self.center**2 / precision
        return self.dimension * per_coordinate

    def exact(self, load: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of one coordinate."""
        precision = 1 + load / self.width**2
        return load * self.center / self.width**2 / precision, 1 / np.sqrt(precision)
