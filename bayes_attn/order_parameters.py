"""The common language: any attention array becomes the same four named scalars (theory, section 1)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class OrderParameters(NamedTuple):
    """Averages over the queries that have a target; all dimensionless.

    The first one, the copy mass, is the one that a field couples to.
    """

    copy_mass: Float[Array, "*batch"]
    """m: mean weight on the key to be copied."""
    participation: Float[Array, "*batch"]
    """q: mean over queries of the sum of squared weights; its inverse is an effective number of keys."""
    uniform_overlap: Float[Array, "*batch"]
    """m_u: mean row sum; 1 for softmax."""
    row_power: Float[Array, "*batch"]
    """q_u: mean squared row sum; 1 for softmax."""


def measure(
    weights: Float[Array, "*batch query key"], queries: Int[Array, " target"], sources: Int[Array, " target"]
) -> OrderParameters:
    """Order parameters of attention weights.

    Parameters
    ----------
    weights: attention weights, rows are queries.
    queries, sources: the queries that have a target and, for each of them, the key that it must copy
        (`CopyTask.queries`, `CopyTask.sources`).
    """
    rows = weights[..., queries, :]
    row_sums = rows.sum(-1)
    return OrderParameters(
        copy_mass=weights[..., queries, sources].mean(-1),
        participation=jnp.square(rows).sum(-1).mean(-1),
        uniform_overlap=row_sums.mean(-1),
        row_power=jnp.square(row_sums).mean(-1),
    )
