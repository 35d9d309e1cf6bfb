"""Several posteriors of one structure in one run: stacked, so that a function of one maps over all."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from bayes_attn.errors import InvalidInput, require
from bayes_attn.posterior import Posterior


def as_sequence(posterior: Posterior | Sequence[Posterior]) -> Sequence[Posterior]:
    """The posteriors that `sample` was given, checked to be alike.

    Raises
    ------
    InvalidInput: there is none, or two differ in more than the values of their arrays.
    """
    # A posterior may be a tuple itself.
    if not isinstance(posterior, list | tuple) or isinstance(posterior, Posterior):
        return (posterior,)  # pyright: ignore[reportReturnType]
    require(len(posterior) > 0, "sample", "posterior", "must be one or a sequence of at least one", posterior)
    for number, other in enumerate(posterior[1:], start=1):
        if (found := _difference(posterior[0], other)) is not None:
            what, first, value = found
            rule = "must hold posteriors that differ in their arrays' values only"
            where = f"({what} is {first!r} in number 0 and another in number {number})"
            raise InvalidInput(f"sample: `posterior` {rule} {where}, got {value!r}.")
    return tuple(posterior)


def _difference(one: Any, other: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """Name and two values of the first thing, apart from arrays' values, that is not the same in both; None: nothing.

    For posteriors and what they hold; a static field is compared as a whole, with `==`.
    """
    if type(one) is not type(other):
        return f"the type of `{name}`" if name else "the type", type(one).__name__, type(other).__name__
    if jax.tree.structure(one) != jax.tree.structure(other):
        for field in dataclasses.fields(one) if dataclasses.is_dataclass(one) else ():
            pair, inner = (getattr(one, field.name), getattr(other, field.name)), f"{name}.{field.name}".lstrip(".")
            if field.metadata.get("static", False):
                found = None if pair[0] == pair[1] else (f"`{inner}`", *pair)
            else:
                found = _difference(*pair, inner)
            if found is not None:
                return found
        return "the structure" + f" of `{name}`" * bool(name), jax.tree.structure(one), jax.tree.structure(other)
    for (path, leaf), its in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(other), strict=True):
        inner = (name + jax.tree_util.keystr(path)).lstrip(".")
        if eqx.is_array(leaf) and eqx.is_array(its):
            if leaf.shape != its.shape or leaf.dtype != its.dtype:
                return f"the shape of `{inner}`", f"{leaf.dtype}{list(leaf.shape)}", f"{its.dtype}{list(its.shape)}"
        elif eqx.is_array(leaf) or eqx.is_array(its) or (leaf is not its and leaf != its):
            return f"`{inner}`, where only arrays may differ,", leaf, its
    return None


def stacked(posteriors: Sequence[Posterior]) -> Posterior:
    """One posterior whose arrays, on the host, have the leading axis posterior."""

    def stack(first: Any, *others: Any) -> Any:
        return np.stack([np.asarray(leaf) for leaf in (first, *others)]) if eqx.is_array(first) else first

    return jax.tree.map(stack, *posteriors)


def for_each(
    function: Callable[[Posterior, PyTree], PyTree], posteriors: Posterior, chains: int, tree: PyTree
) -> PyTree:
    """`function` of each of the `stacked` posteriors and its chains, put back together.

    Leaves of `tree` and of the result have the leading axis chain; chain c belongs to posterior c // `chains`.
    """
    arrays, static = eqx.partition(posteriors, eqx.is_array)

    def one(arrays: PyTree, part: PyTree) -> PyTree:
        return function(eqx.combine(arrays, static), part)

    shared = jax.tree.map(lambda leaf: leaf.reshape(-1, chains, *leaf.shape[1:]), tree)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), jax.vmap(one)(arrays, shared))
