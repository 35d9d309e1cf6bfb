"""Where replicas begin, and the refusal of places without a density."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from bayes_attn.errors import InvalidInput, require, require_integer
from bayes_attn.posterior import Posterior
from bayes_attn.sampling.controls import Controls, log_density

ATTEMPTS = 20
"""Draws of each kind per replica before a start counts as impossible."""


class Starts(NamedTuple):
    """How replicas begin: chain c of a posterior with the kind c % (number of kinds).

    Where that has no finite log-density (as outside a window), it is drawn again and the other kinds are tried in turn,
    `ATTEMPTS` times each.
    """

    draws: tuple[Callable[[PRNGKeyArray], PyTree], ...]
    """Kinds of start, each a function of a key: prior draws (cold) and planted ones (hot), say."""
    chains: int
    """Of each posterior."""


def draw_starts(posteriors: Sequence[Posterior], ladder: Controls, starts: Starts, key: PRNGKeyArray) -> PyTree:
    """A start for every replica, leaves with leading axes (chain, rung), one posterior's chains after another's.

    Raises
    ------
    InvalidInput: `chains` is not a positive integer, or some rung has no start with a finite log-density.
    """
    require_integer("Starts", "chains", starts.chains, least=1)
    require(len(starts.draws) > 0, "Starts", "draws", "must hold at least one kind of start", starts.draws)
    rungs, kinds = len(np.asarray(ladder.load)), len(starts.draws)
    of_posterior = np.tile(np.arange(starts.chains), len(posteriors))
    """Each chain's number among those of its posterior."""
    shape = (len(of_posterior), rungs)
    found, missing = None, np.ones(shape, dtype=bool)
    for attempt in range(ATTEMPTS * kinds):
        keys = jax.random.split(jax.random.fold_in(key, attempt), shape)
        drawn = [jax.vmap(jax.vmap(draw))(keys) for draw in starts.draws]
        kind = (of_posterior + attempt) % kinds
        chosen = jax.tree.map(lambda *leaves, kind=kind: jnp.stack(leaves)[kind, np.arange(len(kind))], *drawn)
        good = np.isfinite(_densities(posteriors, ladder, chosen))
        new = missing & good
        if found is None:
            found = chosen
        else:
            found = jax.tree.map(
                lambda old, fresh, new=new: jnp.where(new.reshape(*shape, *(1,) * (old.ndim - 2)), fresh, old),
                found,
                chosen,
            )
        missing &= ~good
        if not missing.any():
            return found
    chain, rung = (int(i) for i in np.argwhere(missing)[0])
    names = " or ".join(getattr(draw, "__name__", repr(draw)) for draw in starts.draws)
    raise InvalidInput(
        f"sample: `initial` must have a finite log-density at every rung, got none in {ATTEMPTS} draws by {names} at "
        f"chain {chain}, rung {rung}."
    )


def refuse_bad_starts(posteriors: Sequence[Posterior], ladder: Controls, initial: PyTree) -> None:
    """Raise InvalidInput unless `initial` has leading axes (chain, rung) and finite log-densities.

    The chains are those of one posterior after another, as many of each.
    """
    rungs = len(np.asarray(ladder.load))
    shapes = [jnp.shape(leaf)[:2] for leaf in jax.tree.leaves(initial)]
    if not shapes or any(len(s) < 2 or s[1] != rungs or s != shapes[0] for s in shapes):
        raise InvalidInput(f"sample: `initial` must have leading axes (chain, rung) with {rungs} rungs, got {shapes}.")
    chains, number = shapes[0][0], len(posteriors)
    rule = f"must have as many chains for each of the {number} posteriors"
    require(chains % number == 0, "sample", "initial", rule, chains)
    density = _densities(posteriors, ladder, initial)
    if not np.all(np.isfinite(density)):
        chain, rung = (int(i) for i in np.argwhere(~np.isfinite(density))[0])
        where = f"{density[chain, rung]} at chain {chain}, rung {rung}"
        raise InvalidInput(f"sample: `initial` must have a finite log-density at every rung, got {where}.")


def _densities(posteriors: Sequence[Posterior], ladder: Controls, params: PyTree) -> Float[np.ndarray, "chain rung"]:
    """One posterior after another: compiled once, and never more memory than for one."""
    chains = jax.tree.leaves(params)[0].shape[0] // len(posteriors)
    found = []
    for number, posterior in enumerate(posteriors):
        part = jax.tree.map(lambda leaf, first=number * chains: leaf[first : first + chains], params)
        found.append(np.asarray(_densities_of_one(posterior, ladder, part)))
    return np.concatenate(found)


@eqx.filter_jit
def _densities_of_one(posterior: Posterior, ladder: Controls, params: PyTree) -> Float[Array, "chain rung"]:
    return jax.vmap(jax.vmap(partial(log_density, posterior)), in_axes=(0, None))(params, ladder)
