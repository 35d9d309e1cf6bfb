"""The way round the critical end point where no theory says how far to go: a short pilot."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from bayes_attn.errors import require_positive
from bayes_attn.posterior import Posterior
from bayes_attn.sampling.controls import Controls, Path, four_legs
from bayes_attn.sampling.run import sample
from bayes_attn.sampling.samples import Schedule
from bayes_attn.sampling.starts import Starts

SCHEDULE = Schedule(warmup=300, draws=10, thin=20)
RUNGS, CHAINS = 16, 8
MOST_DOUBLINGS = 10
DIFFERENCE = 0.1
"""Of cold and hot starts, in units of the phases' distance, below which there is one phase."""
MARGIN = 1.5
"""How far beyond the first field without two phases the way leads."""


class Pilot(NamedTuple):
    """What a pilot has found."""

    path: Path
    field: float
    """Beyond the end point: along the load there are no two phases in it."""
    cut: float
    """First order parameter between the phases at the target."""
    low: float
    """Mean first order parameter of the phase that cold starts stay in; likewise `high` of hot ones."""
    high: float


def pilot(
    posterior: Posterior,
    load: float,
    cold: Callable[[PRNGKeyArray], PyTree],
    hot: Callable[[PRNGKeyArray], PyTree],
    seed: int,
) -> Pilot:
    """Find the four legs round the end of a line of first-order transitions, by hysteresis.

    Short runs along the load, from cold and from hot starts, are repeated in fields 1, 2, 4, ... until both kinds of
    start agree at every load: there the line has ended. Cold and hot starts must lead to the two phases at `load`.

    Raises
    ------
    InvalidInput: `load` is not positive.
    ArithmeticError: cold and hot starts agree already without a field (there is nothing to go round), or differ in any.
    """
    require_positive("pilot", "load", load)

    def means(field: float) -> np.ndarray:
        """(cold or hot, rung) means."""
        ladder = Controls(jnp.ones(RUNGS), jnp.linspace(0.0, load, RUNGS), jnp.full(RUNGS, field))
        samples = sample(posterior, ladder, Starts((cold, hot), CHAINS), SCHEDULE, seed)
        by_chain = np.asarray(samples.order_parameters[0]).mean(axis=1)
        return np.stack([by_chain[0::2].mean(axis=0), by_chain[1::2].mean(axis=0)])

    def target() -> np.ndarray:
        """(cold, hot) means, of the target alone: swaps with a ladder would bring one phase to both."""
        alone = Controls(jnp.ones(1), jnp.full(1, load), jnp.zeros(1))
        samples = sample(posterior, alone, Starts((cold, hot), CHAINS), SCHEDULE, seed)
        by_chain = np.asarray(samples.order_parameters[0]).mean(axis=(1, 2))
        return np.array([by_chain[0::2].mean(), by_chain[1::2].mean()])

    low, high = target()
    spread = abs(high - low)
    if spread < DIFFERENCE * max(abs(low), abs(high)):
        raise ArithmeticError(f"cold and hot starts agree at load {load:.4g}: there is no first-order line to go round")
    for doubling in range(MOST_DOUBLINGS):
        field = 2.0**doubling
        cold_means, hot_means = means(field)
        if np.max(np.abs(cold_means - hot_means)) < DIFFERENCE * spread:
            cut = float(0.5 * (low + high))
            return Pilot(four_legs(load, MARGIN * field, cut), MARGIN * field, cut, float(low), float(high))
    raise ArithmeticError(f"cold and hot starts differ in every field up to {field:g} at loads up to {load:.4g}")
