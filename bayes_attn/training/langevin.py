"""Langevin dynamics: noisy training whose invariant law is the posterior, up to a bias of the step size.

Conventions. The density p is that of the whole data set, in nats: its gradient g is that of the log-prior plus N / n
times the sum over a batch of n of the N sequences. The temperature T makes p^(1/T) the invariant law for small steps e;
at T = 0 what is left is gradient descent (with momentum, if there is friction).

* overdamped (with batches, SGLD): x <- x + e g(x) + sqrt(2 T e) n, with n standard normal;
* underdamped, unit mass, friction c: x <- x + e v and v <- (1 - c e) v + e g(x) + sqrt(2 c T e) n, both from the state
  before the step (Euler); it needs e < c / h on a direction of curvature h.

On a Gaussian of curvature h the stationary variance is known for every step, see `gaussian_variance`.

References
----------
Welling, Teh, "Bayesian learning via stochastic gradient Langevin dynamics", ICML 2011. Chen, Fox, Guestrin, "Stochastic
gradient Hamiltonian Monte Carlo", ICML 2014. Both steps are those of blackjax.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc import diffusions
from blackjax.sgmcmc.gradients import grad_estimator
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from scipy.linalg import solve_discrete_lyapunov

from bayes_attn.errors import require, require_integer, require_positive
from bayes_attn.joint import Joint, JointParameters
from bayes_attn.training.descent import check_steps, follow

Gradient = Callable[[PRNGKeyArray, Any], PyTree]
"""(key, parameters) -> the gradient of the log-density, or an unbiased estimate of it."""


@dataclass(frozen=True, kw_only=True)
class Langevin:
    """How to walk.

    Parameters
    ----------
    step_size: e, positive.
    temperature: T, at least 0.
    friction: c, positive, for underdamped dynamics; None for overdamped ones.

    Raises
    ------
    InvalidInput: a parameter breaks its rule.
    """

    step_size: float
    temperature: float = 1.0
    friction: float | None = None

    def __post_init__(self) -> None:
        require_positive("Langevin", "step_size", self.step_size)
        finite = 0 <= self.temperature < float("inf")
        require(finite, "Langevin", "temperature", "must be a finite number of at least 0", self.temperature)
        if self.friction is not None:
            require_positive("Langevin", "friction", self.friction)
            stays = self.friction * self.step_size < 1
            require(stays, "Langevin", "friction", "must be below 1 / step_size", self.friction)


def walk(
    gradient: Gradient,
    start: PyTree,
    dynamics: Langevin,
    key: PRNGKeyArray,
    steps: int,
    every: int,
    measure: Callable[[Any], PyTree],
    temperature: Float[Array, ""] | None = None,
) -> tuple[PyTree, PyTree]:
    """Follow the dynamics from one point; the caller maps.

    Parameters
    ----------
    gradient: of the log-density, see `full_gradient` and `batch_gradient`.
    start: any pytree of arrays; velocities start at 0.
    steps, every: how many, and how many between two records; `every` divides `steps`.
    measure: what a record holds, of the parameters.
    temperature: in the place of the dynamics' own, where it is to be mapped over.

    Returns
    -------
    The last parameters, and the records stacked along a first axis: at steps every, 2 every, ..., steps.
    """
    check_steps("walk", steps, every)
    heat: Any = dynamics.temperature if temperature is None else temperature  # blackjax takes arrays, too
    overdamped, underdamped = diffusions.overdamped_langevin(), diffusions.sghmc(dynamics.friction or 0.0)

    def step(state: tuple[Any, Any], number: Array) -> tuple[Any, Any]:
        position, velocity = state
        batch_key, noise_key = jax.random.split(jax.random.fold_in(key, number))
        force = gradient(batch_key, position)
        if dynamics.friction is None:
            return overdamped(noise_key, position, force, dynamics.step_size, heat), velocity
        return underdamped(noise_key, position, velocity, force, dynamics.step_size, heat)

    still = jax.tree.map(jnp.zeros_like, start)
    (last, _), records = follow(step, (start, still), steps, every, lambda state: measure(state[0]))
    return last, records


def full_gradient(joint: Joint, load: Float[Array, ""]) -> Gradient:
    """Of the joint posterior's log-density at a load, over all of its data."""
    gradient = jax.grad(lambda params: joint.log_prior(params) + joint.log_likelihood(params, load))
    return lambda _key, params: gradient(params)


def batch_gradient(joint: Joint, tokens: Int[Array, "sequence position"], batch: int) -> Gradient:
    """An unbiased estimate of it from a batch of the sequences, drawn without replacement at every step.

    Raises
    ------
    InvalidInput: `batch` is not an integer from 1 to the number of sequences.
    """
    require_integer("batch_gradient", "batch", batch, least=1)
    total = len(tokens)
    require(batch <= total, "batch_gradient", "batch", f"must be at most the {total} sequences", batch)
    estimate = grad_estimator(joint.log_prior, joint.sequence_log_likelihood, total)

    def gradient(key: PRNGKeyArray, params: JointParameters) -> PyTree:
        chosen = jax.random.choice(key, total, (batch,), replace=False)
        return estimate(params, tokens[chosen])

    return gradient


def gaussian_variance(dynamics: Langevin, curvature: float, gradient_variance: float = 0.0) -> float:
    """Stationary variance on a Gaussian log-density -h x^2 / 2, exactly, for this step size.

    Overdamped: (2 T + e C) / (h (2 - e h)), with C the variance of the gradient's estimate; underdamped: from the
    discrete Lyapunov equation of position and velocity.

    Raises
    ------
    InvalidInput: the step is so long that the dynamics diverge.
    """
    step, heat = dynamics.step_size, dynamics.temperature
    if dynamics.friction is None:
        require(step * curvature < 2, "gaussian_variance", "step_size", f"must be below {2 / curvature:g}", step)
        return (2 * heat + step * gradient_variance) / (curvature * (2 - step * curvature))
    limit = dynamics.friction / curvature
    require(step < limit, "gaussian_variance", "step_size", f"must be below {limit:g}", step)
    matrix = np.array([[1.0, step], [-step * curvature, 1 - dynamics.friction * step]])
    noise = np.diag([0.0, 2 * dynamics.friction * heat * step + step**2 * gradient_variance])
    return float(solve_discrete_lyapunov(matrix, noise)[0, 0])
