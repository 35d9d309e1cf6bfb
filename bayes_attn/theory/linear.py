"""Linear attention with i.i.d. Gaussian logits: the closed form at finite L (theory, section 4a).

The four order parameters have an exact joint law. In the coordinates

    m_u,   n = (L m - m_u) / sqrt(L - 1),   a = q_u - m_u^2,   b = L q - q_u - n^2

the prior factorises: m_u and n are normal, a and b are chi-square with L - 1 and L (L - 1) - 1 degrees of freedom, all
with the variance of one logit as their scale. The posterior is that product times exp(-U), summed here on a grid.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import make_interp_spline
from scipy.optimize import root_scalar

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

    With s the logit scale, the mean-field action is

        U(m, q, m_u, q_u) + 1/2 L^2 [q / s^2 - log(q - m^2)] + 1/2 L [q_u / s^2 - log(q_u - m_u^2)].

    At m = m_u = 0 and stationary q and q_u, its second derivative by m vanishes at the critical load. For uniform
    tokens the two halves decouple, and the load is the positive root of rho s^2 a (a - w^2) / w^2 = 1 + s^2 (a - w^2)
    with rho = V (V - 1) / L^2 and w the value scale. For others the coupling to m_u is neglected.

    Raises InvalidInput as `action.specification`, and ArithmeticError if no critical load is found.
    """
    spec = specification(posterior, "linear")
    length, logit_variance = float(spec.length), spec.length * spec.standard_deviation**2
    with jax.enable_x64(True):
        stability = eqx.Partial(_stability, spec.action, length, logit_variance)
        low = high = 1e-3
        while stability(jnp.asarray(high)) > 0:
            low, high = high, 1.5 * high
            if high > 1e9:
                raise ArithmeticError("m = 0 is stable at every load up to 1e9")
        return root_scalar(lambda load: float(stability(jnp.asarray(load))), bracket=(low, high), xtol=1e-12).root


@eqx.filter_jit
def _stability(action: Action, length: float, logit_variance: float, load: Float[Array, ""]) -> Float[Array, ""]:
    """Second derivative by m of the mean-field action at m = m_u = 0, with q and q_u stationary."""

    def energy(m: Array, log_powers: Array) -> Array:
        q, row_power = jnp.exp(log_powers)
        entropy = length**2 * (jnp.log(q - m**2) - q / logit_variance)
        entropy += length * (jnp.log(row_power) - row_power / logit_variance)
        return action.energy(load, m, q, 0.0, row_power) - 0.5 * entropy

    zero = jnp.zeros(())

    def step(_: Array, log_powers: Array) -> Array:
        gradient, curvature = jax.grad(energy, 1)(zero, log_powers), jax.hessian(energy, 1)(zero, log_powers)
        return log_powers - jnp.clip(jnp.linalg.solve(curvature, gradient), -0.5, 0.5)

    start = jnp.full(2, jnp.log(logit_variance) - jnp.log1p(load * logit_variance))
    return jax.grad(jax.grad(energy))(zero, jax.lax.fori_loop(0, 60, step, start))


@eqx.filter_jit
def _marginals(
    action: Action, length: int, shape: tuple[int, ...], variance: Array, load: Array, box: Float[Array, "4 2"]
) -> tuple[list[Array], Array]:
    """Unnormalised marginal weights along the four axes of `box`, and the weighted mean of q."""
    axes = [jnp.linspace(low, high, size) for (low, high), size in zip(box, shape, strict=True)]
    overlap, copy_mass, log_a, log_b = jnp.meshgrid(*axes, indexing="ij", sparse=True)
    n = (length * copy_mass - overlap) / math.sqrt(length - 1)
    row_power = overlap**2 + jnp.exp(log_a)
    participation = (row_power + n**2 + jnp.exp(log_b)) / length
    log_prior = (
        0.5 * (length - 1) * log_a + 0.5 * (length * (length - 1) - 1) * log_b - 0.5 * length * participation / variance
    )
    log_weight = log_prior - _energy(action, load, copy_mass, participation, overlap, row_power)
    weight = jnp.exp(log_weight - log_weight.max())
    marginals = [weight.sum([other for other in range(4) if other != axis]) for axis in range(4)]
    return marginals, jnp.sum(weight * participation) / jnp.sum(weight)


def _energy(action: Action, load: Array, m: Array, q: Array, overlap: Array, power: Array) -> Float[Array, "..."]:
    """U on the grid, slab by slab along the first axis: with many frequencies it would not fit into memory at once."""
    slabs = jnp.broadcast_arrays(m, q, overlap, power)
    return jax.lax.map(lambda slab: action.energy(load, *slab), slabs)


def _region(action: Action, length: int, variance: float, load: float) -> Float[np.ndarray, "4 2"]:
    """The box, in (m_u, m, log a, log b), outside which the law is negligible: it follows the law and closes in."""
    log_scale = math.log(variance)
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
        marginals, _ = _marginals(
            action, length, COARSE_SHAPE, jnp.asarray(variance), jnp.asarray(load), jnp.asarray(box)
        )
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
    """The exact law of the order parameters at a load, for i.i.d. tokens with the task's frequencies.

    The region that matters is found by zooming in; the trapezoidal rule then converges faster than any power of the
    spacing. Raises InvalidInput as `action.specification`, and ArithmeticError if the region is not found.
    """
    action, length, standard_deviation, *_ = specification(posterior, "linear")
    variance = standard_deviation**2
    with jax.enable_x64(True):
        box = _region(action, length, variance, load)
        marginals, participation = _marginals(
            action, length, FINE_SHAPE, jnp.asarray(variance), jnp.asarray(load), jnp.asarray(box)
        )
        nodes, weight = np.linspace(box[1, 0], box[1, 1], FINE_SHAPE[1]), np.asarray(marginals[1])
    # Finer between the nodes, because |m| has a kink that the trapezoidal rule would see.
    copy_mass = np.linspace(box[1, 0], box[1, 1], 20 * FINE_SHAPE[1])
    probability = np.maximum(make_interp_spline(nodes, weight, k=5)(copy_mass), 0.0)
    density = Density(copy_mass, probability / np.trapezoid(probability, copy_mass))
    return OrderParameterLaw(density, density.mean(np.abs), density.mean(np.square), float(participation))
