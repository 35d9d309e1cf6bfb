"""Full-batch descent of any loss, with a record of anything on the way; one point, the caller maps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from bayes_attn.errors import require, require_integer


def check_steps(owner: str, steps: int, every: int) -> None:
    """Refuse steps that do not divide into records.

    Raises
    ------
    InvalidInput: `steps` or `every` is not a positive integer, or `every` does not divide `steps`.
    """
    require_integer(owner, "steps", steps, least=1)
    require_integer(owner, "every", every, least=1)
    require(steps % every == 0, owner, "every", f"must divide the {steps} steps", every)


def descend(
    loss: Callable[[Any], jax.Array],
    params: PyTree,
    optimiser: optax.GradientTransformation,
    steps: int,
    every: int,
    measure: Callable[[Any], PyTree],
) -> tuple[PyTree, PyTree]:
    """Steps of an optimiser down a loss.

    Parameters
    ----------
    loss: of parameters, to a scalar; params: where to start, any pytree of arrays.
    optimiser: of optax.
    steps, every: how many, and how many between two records; `every` divides `steps`.
    measure: what a record holds, of the parameters.

    Returns
    -------
    The last parameters, and the records stacked along a first axis: at steps 0, every, 2 every, ..., steps.
    """
    check_steps("descend", steps, every)
    gradient = jax.grad(loss)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        params, state = carry
        updates, state = optimiser.update(gradient(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    def leg(carry: Any, _: None) -> tuple[Any, PyTree]:
        carry, _ = jax.lax.scan(step, carry, None, length=every)
        return carry, measure(carry[0])

    start = (params, optimiser.init(params))
    (params, _), rest = jax.lax.scan(leg, start, None, length=steps // every)
    first = measure(start[0])
    return params, jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), first, rest)
