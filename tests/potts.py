"""The mean-field Potts model through the posterior contract, and its exact enumeration at finite N.

Weight exp(beta / (2 N) sum_c (n_c - N / q)^2) of N spins with q colours. With a normal field for each colour (Hubbard
and Stratonovich),

    exp(beta n^2 / (2 N)) = E_y[exp(sqrt(beta / N) y n)],    y ~ N(0, 1),

the sum over spins gives the log-likelihood N log((1/q) sum_c exp(sqrt(beta / N) (y_c - mean of y))) of the fields y.
Their posterior at load = beta is the model itself: given y, the colours' numbers are multinomial.
"""

import math
from collections import namedtuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

FIELDS = {q: namedtuple("Fields", ["spread", *(f"field_{c}" for c in range(q))]) for q in (3, 4)}
"""Scalars: the largest field less their mean, and the fields."""


class Potts(eqx.Module):
    colours: int = eqx.field(static=True)
    spins: jax.Array = eqx.field(converter=jnp.asarray)
    """An array, so that all sizes share one compiled run."""

    @property
    def size(self) -> jax.Array:
        return self.spins

    def sample_prior(self, key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (self.colours,))

    def log_prior(self, params: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(params**2) - 0.5 * self.colours * math.log(2 * math.pi)

    def log_likelihood(self, params: jax.Array, load: jax.Array) -> jax.Array:
        fields = jnp.sqrt(load / self.spins) * (params - params.mean())
        return self.spins * (jax.nn.logsumexp(fields) - math.log(self.colours))

    def order_parameters(self, params: jax.Array) -> tuple[jax.Array, ...]:
        return FIELDS[self.colours](params.max() - params.mean(), *params)

    def largest_share(self, beta: float, fields: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Exact draws of the largest colour's share, one for each entry of `fields` (..., colour)."""
        spins = int(self.spins)
        logits = np.sqrt(beta / spins) * fields
        probability = np.exp(logits - logits.max(-1, keepdims=True))
        probability /= probability.sum(-1, keepdims=True)
        return generator.multinomial(spins, probability).max(-1) / spins


def enumerate_potts(colours: int, spins: int, beta: float) -> tuple[np.ndarray, float]:
    """(probability that the largest colour has 0 ... N spins, log of the mean weight over all q^N states).

    The coefficient of x^N in (sum_{n <= m} w_n x^n)^q, w_n = exp(beta n^2 / (2 N)) / n!, counts the states whose
    colours have at most m spins each; w is tilted by exp(tilt n), which changes all states alike, to stay within range.
    """
    n = np.arange(spins + 1)
    log_weight = beta * n**2 / (2 * spins) - gammaln(n + 1)
    tilt = -log_weight[spins // colours] / (spins // colours)
    weight = np.exp(log_weight + tilt * n)
    up_to = np.zeros(spins + 1)
    for most in range(math.ceil(spins / colours), spins + 1):
        one = np.where(n <= most, weight, 0.0)
        two = np.convolve(one, one)[: spins + 1]
        rest = two if colours == 4 else one
        up_to[most] = two @ rest[::-1]
    log_mean = math.log(up_to[-1]) - tilt * spins + gammaln(spins + 1) - spins * math.log(colours)
    log_mean -= beta * spins / (2 * colours)
    return np.diff(up_to, prepend=0.0) / up_to[-1], log_mean


def phase_quadrature(spins: int, beta: float, cut: float) -> np.ndarray:
    """Log-normalisations of three colours' fields with a spread up to the cut, and above it.

    Only the fields' differences matter, which lie in a plane; by a sum over a fine grid of it.
    """
    axis = np.arange(-(8 + np.sqrt(beta * spins)), 8 + np.sqrt(beta * spins), 0.05)
    first, second = np.meshgrid(axis, axis, indexing="ij")
    plane = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    fields = np.stack([first * a + second * b for a, b in plane.T])
    scaled = np.sqrt(beta / spins) * fields
    peak = scaled.max(axis=0)
    log_mean = peak + np.log(np.exp(scaled - peak).mean(axis=0))
    log_density = spins * log_mean - 0.5 * (first**2 + second**2) - np.log(2 * np.pi) + 2 * np.log(0.05)
    above = fields.max(axis=0) > cut
    return np.array([np.logaddexp.reduce(log_density[side]) for side in (~above, above)])
