"""A transition in one dimension of which everything is known by quadrature: two normals, tilted by the load."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from scipy.optimize import brentq


class Place(NamedTuple):
    place: jax.Array


class TwoWells(eqx.Module):
    """Prior: two normals, of which the lower one has more weight. Log-likelihood: load * (x - 5)."""

    weights: jax.Array = eqx.field(converter=jnp.asarray, default=(0.83, 0.17))
    centres: tuple[float, float] = (5.0, 6.6)
    widths: tuple[float, float] = (0.25, 0.35)

    @property
    def size(self) -> int:
        return 1

    def sample_prior(self, key: jax.Array) -> jax.Array:
        which, noise = jax.random.split(key)
        upper = (jax.random.uniform(which) < self.weights[1]).astype(int)
        return (jnp.asarray(self.centres)[upper] + jnp.asarray(self.widths)[upper] * jax.random.normal(noise))[None]

    def log_prior(self, params: jax.Array) -> jax.Array:
        return logsumexp(
            jnp.log(self.weights) + norm.logpdf(params, jnp.asarray(self.centres), jnp.asarray(self.widths))
        )

    def log_likelihood(self, params: jax.Array, load: jax.Array) -> jax.Array:
        return load * (params[0] - 5.0)

    def order_parameters(self, params: jax.Array) -> Place:
        return Place(params[0])

    def exact(self) -> dict[str, float]:
        """Coexistence, barrier, heat and normalisations on a fine grid."""
        x = np.linspace(3.0, 9.0, 60_001)
        prior = np.exp(np.asarray(jax.vmap(self.log_prior)(jnp.asarray(x)[:, None])))
        step, middle = x[1] - x[0], (x > 5) & (x < 6.6)

        def density(load: float) -> np.ndarray:
            return prior * np.exp(load * (x - 5.0)) * step

        def valley(load: float) -> int:
            return int(np.flatnonzero(middle)[np.argmin(density(load)[middle])])

        def odds(load: float) -> float:
            p, cut = density(load), valley(load)
            return float(np.log(p[cut:].sum()) - np.log(p[:cut].sum()))

        def heights(load: float) -> float:
            p, cut = density(load), valley(load)
            return float(np.log(p[cut:].max()) - np.log(p[:cut].max()))

        weight, height = float(brentq(odds, 0.3, 2.0)), float(brentq(heights, 0.3, 3.0))
        at_height, cut = density(height), valley(height)
        p = density(weight)
        jump = float(p[cut:] @ x[cut:] / p[cut:].sum() - p[:cut] @ x[:cut] / p[:cut].sum())
        middle_load = density(0.75)
        return {
            "equal_weight": weight,
            "equal_height": height,
            "barrier": float(np.log(at_height.max()) - np.log(at_height[cut])),
            "latent_heat": -jump,
            "log_normalisation": float(np.log(density(2.0).sum())),
            "mean": float(middle_load @ x / middle_load.sum()),
            "upper": float(np.log(middle_load[x > 5.8].sum())),
            "lower": float(np.log(middle_load[x <= 5.8].sum())),
        }
