"""Linear attention with i.i.d. Gaussian logits: the closed form at finite L (theory, section 4a).

The four order parameters have an exact joint law. In the coordinates

    m_u,   n = (L m - m_u) / sqrt(L - 1),   a = q_u - m_u^2,   b = L q - q_u - n^2

the prior factorises: m_u and n are normal, a and b are chi-square with L - 1 and L (L - 1) - 1 degrees of freedom, all
with the variance of one logit as their scale. The posterior is that product times exp(-U), summed here on a grid.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import make_interp_spline

from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.action import Action, Density, specification

COARSE_SHAPE = (24, 48, 24, 24)
"""Grid nodes in (m_u, m, log a, log b) while the region that matters is sought."""
FINE_SHAPE = (40, 201, 32, 32)
LOG_NEGLIGIBLE = 25.0


class OrderParameterLaw(NamedTuple):
    """Exact posterior of linear attention's order parameters at one load."""

    density: Density
    """Of the signed copy mass, which is symmetric about 0."""
    absolute_copy_mass: float
    """Mean of |m|."""
    squared_copy_mass: float
    """Mean of m^2."""
    participation: float
    """Mean of q."""


def critical_load(posterior: CopyPosterior) -> float:
    """Load at which m = 0 loses stability in mean-field theory (theory, section 4a).

    The larger root of rho s^2 a (a - w^2) / w^2 = 1 + s^2 (a - w^2), with rho = V (V - 1) / L^2, s the logit scale and
    w the value scale. Raises InvalidInput as `action.specification`.
    """
    action, standard_deviation = specification(posterior, "linear")
    ratio = action.vocab * (action.vocab - 1) / action.length**2
    logit_variance, value_variance = action.length * standard_deviation**2, action.value_scale**2
    quadratic = ratio * logit_variance / value_variance
    negative_linear = (ratio + 1) * logit_variance
    constant = logit_variance * value_variance - 1
    return (negative_linear + math.sqrt(negative_linear**2 - 4 * quadratic * constant)) / (2 * quadratic)


@partial(jax.jit, static_argnums=(0, 1))
def _marginals(
    action: Action, shape: tuple[int, ...], variance: Array, load: Array, box: Float[Array, "4 2"]
) -> tuple[list[Array], Array]:
    """Unnormalised marginal weights along the four axes of `box`, and the weighted mean of q."""
    length = action.length
    axes = [jnp.linspace(low, high, size) for (low, high), size in zip(box, shape, strict=True)]
    overlap, copy_mass, log_a, log_b = jnp.meshgrid(*axes, indexing="ij", sparse=True)
    n = (length * copy_mass - overlap) / math.sqrt(length - 1)
    row_power = overlap**2 + jnp.exp(log_a)
    participation = (row_power + n**2 + jnp.exp(log_b)) / length
    log_prior = (
        0.5 * (length - 1) * log_a + 0.5 * (length * (length - 1) - 1) * log_b - 0.5 * length * participation / variance
    )
    energy = action.bulk(load, copy_mass, participation) + action.uniform(load, overlap, row_power)
    log_weight = log_prior - energy
    weight = jnp.exp(log_weight - log_weight.max())
    marginals = [weight.sum([other for other in range(4) if other != axis]) for axis in range(4)]
    return marginals, jnp.sum(weight * participation) / jnp.sum(weight)


def _region(action: Action, variance: float, load: float) -> Float[np.ndarray, "4 2"]:
    """The box, in (m_u, m, log a, log b), outside which the law is negligible: it follows the law and closes in."""
    length, log_scale = action.length, math.log(variance)
    spread = 9 * math.sqrt(variance)
    box = np.array(
        [
            [-spread - 1.5, spread + 1.5],
            [-spread / math.sqrt(length) - 1.5, spread / math.sqrt(length) + 1.5],
            [log_scale + math.log(length) - 5, log_scale + math.log(length) + 4],
            [log_scale + 2 * math.log(length) - 4, log_scale + 2 * math.log(length) + 3],
        ]
    )
    for _ in range(60):
        before = box.copy()
        marginals, _ = _marginals(action, COARSE_SHAPE, variance, load, jnp.asarray(box))
        touching = False
        for axis, marginal in enumerate(marginals):
            nodes = np.linspace(box[axis, 0], box[axis, 1], len(marginal))
            inside = nodes[np.asarray(marginal) > np.exp(-LOG_NEGLIGIBLE) * marginal.max()]
            # An edge that the law touches moves out by half the box; the others close in to one node beyond the law.
            touches = inside[0] == nodes[0], inside[-1] == nodes[-1]
            half, margin = 0.5 * (nodes[-1] - nodes[0]), nodes[1] - nodes[0]
            box[axis] = inside[0] - (half if touches[0] else margin), inside[-1] + (half if touches[1] else margin)
            touching |= any(touches)
        settled = np.abs(box - before) < 0.2 * np.ptp(before, axis=1, keepdims=True)
        if not touching and np.all(settled):
            return box
    raise ArithmeticError(f"the law of the order parameters was not found at load {load:.6g}")


def order_parameter_law(posterior: CopyPosterior, load: float) -> OrderParameterLaw:
    """The exact law of the order parameters at a load, for i.i.d. uniform tokens.

    The region that matters is found by zooming in; the trapezoidal rule then converges faster than any power of the
    spacing. Raises InvalidInput as `action.specification`, and ArithmeticError if the region is not found.
    """
    action, standard_deviation = specification(posterior, "linear")
    variance = standard_deviation**2
    with jax.enable_x64(True):
        box = _region(action, variance, load)
        marginals, participation = _marginals(action, FINE_SHAPE, variance, load, jnp.asarray(box))
        nodes, weight = np.linspace(box[1, 0], box[1, 1], FINE_SHAPE[1]), np.asarray(marginals[1])
    # Finer between the nodes, because |m| has a kink that the trapezoidal rule would see.
    copy_mass = np.linspace(box[1, 0], box[1, 1], 20 * FINE_SHAPE[1])
    probability = np.maximum(make_interp_spline(nodes, weight, k=5)(copy_mass), 0.0)
    density = Density(copy_mass, probability / np.trapezoid(probability, copy_mass))
    return OrderParameterLaw(density, density.mean(np.abs), density.mean(np.square), float(participation))
