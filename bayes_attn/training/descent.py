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

    def step(carry: Any, _: jax.Array) -> Any:
        params, state = carry
        updates, state = optimiser.update(gradient(params), state, params)
        return optax.apply_updates(params, updates), state

    (last, _), rest = follow(step, (params, optimiser.init(params)), steps, every, lambda carry: measure(carry[0]))
    first = measure(params)
    return last, jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), first, rest)


def follow(
    step: Callable[[Any, jax.Array], Any], state: Any, steps: int, every: int, measure: Callable[[Any], PyTree]
) -> tuple[Any, PyTree]:
    """Take steps 0, 1, ... (each from the state and its number), and measure the state after every few.

    Returns the last state, and the records stacked along a first axis: after `every`, 2 `every`, ..., `steps`.
    """

    def one(state: Any, number: jax.Array) -> tuple[Any, None]:
        return step(state, number), None

    def leg(state: Any, numbers: jax.Array) -> tuple[Any, PyTree]:
        state, _ = jax.lax.scan(one, state, numbers)
        return state, measure(state)

    return jax.lax.scan(leg, state, jnp.arange(steps).reshape(-1, every))
