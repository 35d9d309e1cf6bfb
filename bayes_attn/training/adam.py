"""Adam on the joint posterior's density, over seeds, starts and nested data amounts (theory, section 8).

Conventions: the whole batch at every step; the loss is the negative log-density in nats, |Y - Phi W|^2 / (2 kappa)
plus, unless the training is plain, the priors' |S|^2 / (2 sigma_s^2) + V |W|^2 / (2 sigma_w^2) as decay. Adam does not
feel the loss's scale. Single precision, as practitioners train.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_attn.errors import require, require_integer, require_positive
from bayes_attn.joint import Joint, JointParameters
from bayes_attn.order_parameters import OrderParameters
from bayes_attn.posterior import average_moments
from bayes_attn.training.descent import check_steps, descend


def cold_start(joint: Joint, key: PRNGKeyArray, load: Float[Array, ""]) -> JointParameters:
    """A draw from the priors."""
    del load
    return joint.sample_prior(key)


def hot_start(joint: Joint, key: PRNGKeyArray, load: Float[Array, ""]) -> JointParameters:
    """The copy pattern planted on a prior draw, with the best value matrix for it."""
    attention = joint.collapsed.sample_copy(key)
    return JointParameters(attention, joint.best_value(attention, load))


STARTS: dict[str, Callable[[Joint, PRNGKeyArray, Float[Array, ""]], JointParameters]] = {
    "cold": cold_start,
    "hot": hot_start,
}


@dataclass(frozen=True, kw_only=True)
class Regimen:
    """How to train.

    Parameters
    ----------
    steps: of Adam.
    rate: its learning rate, positive.
    every: steps between two records; divides `steps`.
    decay: whether the priors count, as decay; without them the training is plain.
    starts: names in `STARTS`.

    Raises
    ------
    InvalidInput: a parameter breaks its rule.
    """

    steps: int = 3_000
    rate: float = 0.02
    every: int = 60
    decay: bool = True
    starts: tuple[str, ...] = ("cold", "hot")

    def __post_init__(self) -> None:
        check_steps("Regimen", self.steps, self.every)
        require_positive("Regimen", "rate", self.rate)
        require(isinstance(self.decay, bool), "Regimen", "decay", "must be True or False", self.decay)
        known = len(self.starts) > 0 and len(set(self.starts)) == len(self.starts) and set(self.starts) <= set(STARTS)
        require(known, "Regimen", "starts", f"must be different ones of {', '.join(STARTS)}", self.starts)


class Record(NamedTuple):
    """Of one network at one step."""

    order_parameters: OrderParameters
    train_loss: Float[Array, "*batch"]
    """Mean squared error per target, over the data; 1 for a network that predicts nothing."""
    held_out_loss: Float[Array, "*batch"]
    """The same for fresh sequences, averaged over them in closed form."""
    attention: Float[Array, "*batch query key"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """Networks trained over seeds, starts and data amounts."""

    amounts: Float[np.ndarray, " amount"]
    """Sequences, increasing."""
    starts: tuple[str, ...]
    steps: Int[np.ndarray, " record"]
    order_parameters: OrderParameters = field(repr=False)
    """Arrays of shape (seed, start, amount, record)."""
    train_loss: Float[np.ndarray, "seed start amount record"] = field(repr=False)
    held_out_loss: Float[np.ndarray, "seed start amount record"] = field(repr=False)
    attention: Float[np.ndarray, "start amount record query key"] = field(repr=False)
    """Of the first seed."""
    final: JointParameters = field(repr=False)
    """The last parameters, arrays that begin with (seed, start, amount)."""

    @property
    def final_copy_mass(self) -> Float[np.ndarray, "seed start amount"]:
        """Magnitude of m at the last step (of linear attention, m and -m are one solution)."""
        return np.abs(self.order_parameters.copy_mass[..., -1])

    def switch(self, start: str, cut: float) -> Float[np.ndarray, " seed"]:
        """The data amount at which the trained network becomes a copy head, for every seed.

        Half-way between the last amount whose copy mass ends below `cut` and the next one. Infinite where even the
        most data give none, and 0 where the least do.
        """
        above = self.final_copy_mass[:, self.starts.index(start)] > cut
        last = np.array([np.flatnonzero(~row)[-1] if not row.all() else -1 for row in above])
        low, high = np.concatenate([[0.0], self.amounts]), np.concatenate([self.amounts, [np.inf]])
        return np.where(last < 0, 0.0, 0.5 * (low[last + 1] + high[last + 1]))


def largest_step(series: Float[np.ndarray, "*batch record"]) -> tuple[np.ndarray, np.ndarray]:
    """The largest change from one record to the next, as a share of the distance between the series' extremes, and the
    index of the record that it leads to."""
    changes = np.abs(np.diff(series, axis=-1))
    span = np.ptp(series, axis=-1)
    return changes.max(axis=-1) / np.where(span > 0, span, 1.0), changes.argmax(axis=-1) + 1


def check_amounts(parameter: str, amounts: Float[np.ndarray, " amount"], given: object) -> None:
    """Refuse data amounts that `train` cannot take; `given` is what the user wrote.

    Raises
    ------
    InvalidInput: there are none, or they are not positive, finite and increasing.
    """
    increasing = amounts.ndim == 1 and amounts.size > 0 and bool(np.all(np.diff(amounts, prepend=0.0) > 0))
    require(increasing and bool(np.isfinite(amounts).all()), "train", parameter, "must be positive and increase", given)


def train(
    posteriors: Iterable[Joint],
    amounts: Sequence[float] | Float[np.ndarray, " amount"],
    regimen: Regimen = Regimen(),
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Training:
    """Train on every data amount from every start, once per posterior.

    Parameters
    ----------
    posteriors: one per seed, of one shape; made one after the other, if they come from a generator. Networks of
        different seeds have their own starting points, and their own data where the posteriors have.
    amounts: sequences, increasing; nested where the posterior is a data set's.
    regimen: steps, rate, starts.
    seed: fixes the starting points.
    progress: told how many seeds are done.

    Raises
    ------
    InvalidInput: amounts do not increase or are not positive, or ask for more than the sequences at hand; there is no
        posterior.
    """
    data = np.asarray(amounts, dtype=float)
    check_amounts("amounts", data, data.tolist())
    require_integer("train", "seed", seed, least=0)
    key, outcomes = jax.random.key(seed), []
    # One seed at a time where memory is slow: all its networks then share the data in the processor's cache.
    for number, joint in enumerate(posteriors):
        loads = np.array([float(joint.collapsed.load(float(amount))) for amount in data])
        joint.check_load(float(loads[-1]))
        outcome = jax.device_get(_trained(joint, jnp.asarray(loads), jax.random.fold_in(key, number), regimen))
        if outcomes:
            outcome = (outcome[0], outcome[1]._replace(attention=outcomes[0][1].attention[:0]))
        outcomes.append(outcome)
        if progress is not None:
            progress(number + 1)
    require(len(outcomes) > 0, "train", "posteriors", "must hold at least one", 0)
    attention = outcomes[0][1].attention
    outcomes[0] = (outcomes[0][0], outcomes[0][1]._replace(attention=attention[:0]))
    final, record = jax.tree.map(lambda *each: np.stack(each), *outcomes)
    return Training(
        amounts=data,
        starts=regimen.starts,
        steps=np.arange(0, regimen.steps + 1, regimen.every),
        order_parameters=record.order_parameters,
        train_loss=record.train_loss,
        held_out_loss=record.held_out_loss,
        attention=attention,
        final=final,
    )


@eqx.filter_jit
def _trained(
    joint: Joint, loads: Float[Array, " amount"], key: PRNGKeyArray, regimen: Regimen
) -> tuple[JointParameters, Record]:
    """All starts and amounts of one seed; arrays begin with (start, amount) and, for the record, (step)."""

    def for_amount(load: Float[Array, ""]) -> tuple[JointParameters, Record]:
        here = joint.at_load(load)
        begun = [STARTS[name](here, key, load) for name in regimen.starts]
        here, begun, at = _single((here, begun, load))
        outcomes = [
            descend(
                partial(objective, here, at, regimen.decay),
                params,
                optax.adam(regimen.rate),
                regimen.steps,
                regimen.every,
                partial(record, here, at),
            )
            for params in begun
        ]
        return jax.tree.map(lambda *each: jnp.stack(each), *outcomes)

    outcome = jax.vmap(for_amount)(loads)
    return jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), outcome)


def _single(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, tree)


def objective(joint: Joint, load: Float[Array, ""], decay: bool, params: JointParameters) -> Float[Array, ""]:
    """What is descended, in nats."""
    loss = -joint.log_likelihood(params, load)
    return loss - joint.log_prior(params) if decay else loss


def record(joint: Joint, load: Float[Array, ""], params: JointParameters) -> Record:
    """What is kept of a network at one step."""
    order = joint.order_parameters(params)
    moments = joint.collapsed.moments(params.attention, load)
    fresh = average_moments(joint.collapsed.task, order, jnp.ones_like(load))
    return Record(
        order,
        moments.squared_error(params.value) / moments.targets,
        fresh.squared_error(params.value),
        joint.collapsed.weights(params.attention),
    )
