"""A transition in one dimension of which everything is known by quadrature: a double well, tilted by the load."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import root_scalar

GRID = np.linspace(2.5, 7.5, 50_001)
STEP = float(GRID[1] - GRID[0])


def _log_weight(x: jax.Array) -> jax.Array:
    """Wells of unlike width at about 4 and 6, the lower one favoured; not normalised."""
    u = x - 5.0
    return -3.2 * (u**2 - 1) ** 2 - u + 0.5 * u**3


WEIGHT = np.exp(np.asarray(_log_weight(jnp.asarray(GRID))))
TOTAL = float(WEIGHT.sum() * STEP)


class Place(NamedTuple):
    place: jax.Array


class TwoWells(eqx.Module):
    """Prior: the double well. Log-likelihood: load * (x - 5)."""

    @property
    def size(self) -> int:
        return 1

    def sample_prior(self, key: jax.Array) -> jax.Array:
        cumulative = jnp.asarray(np.cumsum(WEIGHT) / WEIGHT.sum())
        return jnp.interp(jax.random.uniform(key, (1,)), cumulative, jnp.asarray(GRID))

    def log_prior(self, params: jax.Array) -> jax.Array:
        return _log_weight(params[0]) - np.log(TOTAL)

    def log_likelihood(self, params: jax.Array, load: jax.Array) -> jax.Array:
        return load * (params[0] - 5.0)

    def order_parameters(self, params: jax.Array) -> Place:
        return Place(params[0])

    def exact(self) -> dict[str, float]:
        """Coexistence, barrier, heat and normalisations on a fine grid."""
        x, middle = GRID, (GRID > 4.2) & (GRID < 5.8)

        def density(load: float) -> np.ndarray:
            return WEIGHT / TOTAL * np.exp(load * (x - 5.0)) * STEP

        def valley(load: float) -> int:
            return int(np.flatnonzero(middle)[np.argmin(density(load)[middle])])

        def odds(load: float) -> float:
            p, cut = density(load), valley(load)
            return float(np.log(p[cut:].sum()) - np.log(p[:cut].sum()))

        def heights(load: float) -> float:
            p, cut = density(load), valley(load)
            return float(np.log(p[cut:].max()) - np.log(p[:cut].max()))

        weight, height = (root_scalar(of, bracket=(0.2, 1.8)).root for of in (odds, heights))
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
            "upper": float(np.log(middle_load[x > 5.0].sum())),
            "lower": float(np.log(middle_load[x <= 5.0].sum())),
        }
