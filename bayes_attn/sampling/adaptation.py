"""Warm-up: step sizes at every scan; within-phase metric, and where the rungs lie, between rounds and on the host.

Nothing here is called in the recorded round, which is therefore a plain Markov chain.

References
----------
Syed, Bouchard-Cote, Deligiannidis, Doucet, "Non-reversible parallel tempering: a scalable highly parallel MCMC scheme",
J. R. Stat. Soc. B 84 (2022), doi:10.1111/rssb.12464: the ladder from the communication barrier, in rounds that double.
"""

import math

import jax
import numpy as np
from blackjax.adaptation.step_size import DualAveragingAdaptationState, dual_averaging_adaptation
from jaxtyping import Array, Float, Int
from scipy.interpolate import PchipInterpolator
from scipy.special import erfinv

from bayes_attn.sampling.samples import Round

INITIAL_STEP_SIZE = 0.05
"""Before adaptation, small enough for any start."""
FIRST_ROUND = 64
"""Scans in the first round of the warm-up, or fewer where the warm-up is short; each round is twice the one before."""
LEAST_DRAWS = 32
"""Of a phase at a rung, before its spread goes into the metric."""
PRIOR_DRAWS = 10.0
"""How many draws the unit metric counts for (Stan counts 5 for a metric of 1e-3)."""
MOST_GROWTH = 3
"""How many times the rungs a round may ask for: where hardly a swap is accepted, the barrier is not well known."""
LARGEST_INTERVAL = 0.5
"""Of the communication barrier between neighbouring rungs, for `rungs="auto"`: two rungs per unit of barrier."""


def round_ends(warmup: int, stride: int = 1) -> list[int]:
    """Scan numbers at which the rounds of a warm-up end, each round twice the one before, in whole strides of scans."""
    rounds = max(1, int(math.log2(warmup / FIRST_ROUND + 1)))
    strides = warmup // stride
    return [stride * (strides * (2**i - 1) // (2**rounds - 1)) for i in range(1, rounds + 1)]


def start(step_size: Float[Array, "chain rung"], target: float) -> DualAveragingAdaptationState:
    """Dual averaging of a step size per chain and rung, every leaf with these axes."""
    init, _, _ = dual_averaging_adaptation(target)
    return jax.vmap(jax.vmap(init))(step_size)


def update(
    state: DualAveragingAdaptationState, acceptance: Float[Array, "chain rung"], target: float
) -> DualAveragingAdaptationState:
    """One update, each chain by itself, so that devices need not talk; `WarmUp` averages over the chains."""
    _, update_one, _ = dual_averaging_adaptation(target)
    return jax.vmap(jax.vmap(update_one))(state, acceptance)


class Spread:
    """Variance of each coordinate within the phases, per rung, over one round.

    A covariance pooled over two phases would describe neither. So draws are told apart by a threshold of the first
    order parameter, and each group's variance is taken about its own mean. The threshold is the one that splits the
    order parameters of the round before with the least variance within its two groups (Otsu); a single phase is then
    split too, which changes nothing but its variance along the order parameter itself.
    """

    def __init__(self, split: Float[np.ndarray, " rung"], dimension: int) -> None:
        self.split = split
        self.sums = np.zeros((3, 2, len(split), dimension))
        """Number of draws, sum and sum of squares, of each group."""

    def add(
        self, order: Float[np.ndarray, "chain draw rung"], draws: Float[np.ndarray, "chain draw rung dimension"]
    ) -> None:
        values = draws.astype(float)
        for group, chosen in enumerate((order <= self.split, order > self.split)):
            weight = chosen[..., None].astype(float)
            for power in range(3):
                self.sums[power, group] += (weight * values**power).sum(axis=(0, 1))

    def scale(self, before: Float[np.ndarray, "rung dimension"]) -> Float[np.ndarray, "rung dimension"]:
        """Standard deviations, drawn towards 1; `before` where a rung has too few draws."""
        number, total, squares = self.sums
        enough = number >= LEAST_DRAWS
        counted = np.where(enough, number, 0.0).sum(axis=0)
        mean = total / np.maximum(number, 1.0)
        within = np.where(enough, squares - number * mean**2, 0.0).sum(axis=0)
        variance = (np.maximum(within, 0.0) + PRIOR_DRAWS) / (counted + PRIOR_DRAWS)
        return np.where(counted > 0, np.sqrt(variance), before)


def threshold(order: Float[np.ndarray, "chain scan rung"]) -> Float[np.ndarray, " rung"]:
    """The split of each rung's values into two groups with the least variance within them."""
    values = np.sort(order.reshape(-1, order.shape[-1]), axis=0)
    if len(values) < 2:
        return values[0]
    number = np.arange(1, len(values))[:, None]
    centred = values - values.mean(axis=0)
    between = np.cumsum(centred, axis=0)[:-1] ** 2 / (number * (len(values) - number))
    best = np.argmax(between, axis=0)[None]
    return np.take_along_axis((values[:-1] + values[1:]) / 2, best, axis=0)[0]


def barrier(rejection: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " pair"]:
    """Communication barrier between neighbouring rungs, without the saturation of the rejection rate.

    Where the log-density ratio is normal, a barrier b makes the rejection erf(b sqrt(pi) / 2); to first order b is the
    rejection itself.
    """
    return 2 / math.sqrt(math.pi) * erfinv(np.clip(rejection, 1e-4, 1 - 1e-4))


def intervals(legs: Float[np.ndarray, " leg"], rungs: int) -> Int[np.ndarray, " leg"]:
    """How many intervals each leg gets, at least one, so that the largest barrier of an interval is least."""
    given = np.ones(len(legs), dtype=int)
    for _ in range(rungs - 1 - len(legs)):
        given[np.argmax(legs / given)] += 1
    return given


def enough_rungs(legs: Float[np.ndarray, " leg"]) -> int:
    """The number of rungs with which no interval is larger than `LARGEST_INTERVAL`."""
    return 1 + int(np.sum(np.maximum(1, np.ceil(legs / LARGEST_INTERVAL))))


def cumulative(position: Float[np.ndarray, " rung"], rejection: Float[np.ndarray, " pair"]) -> PchipInterpolator:
    """The communication barrier from the first rung to any position: monotone interpolation."""
    return PchipInterpolator(position, np.concatenate([[0.0], np.cumsum(barrier(rejection))]))


def spaced(
    position: Float[np.ndarray, " rung"], rejection: Float[np.ndarray, " pair"], rungs: int
) -> Float[np.ndarray, " new_rung"]:
    """`rungs` positions with equal barriers between neighbours on each leg; the legs' ends stay."""
    sofar = cumulative(position, rejection)
    ends = np.arange(int(position[-1]) + 1)
    given = intervals(np.diff(sofar(ends)), rungs)
    places = [ends[:1].astype(float)]
    for leg, number in enumerate(given):
        fine = np.linspace(leg, leg + 1, 1025)
        levels = np.linspace(sofar(leg), sofar(leg + 1), number + 1)
        inner = np.interp(levels[1:-1], sofar(fine), fine)
        places += [inner, [leg + 1.0]]
    return np.concatenate(places)


def even(legs: int, rungs: int) -> Float[np.ndarray, " rung"]:
    """The first guess: every leg divided evenly, with as many intervals as the others or one more."""
    given = intervals(np.ones(legs), rungs)
    return np.concatenate([[0.0], *(leg + np.arange(1, number + 1) / number for leg, number in enumerate(given))])


def resampled(
    after: Float[np.ndarray, " new_rung"], before: Float[np.ndarray, " rung"], values: Float[np.ndarray, "rung *rest"]
) -> Float[np.ndarray, "new_rung *rest"]:
    """Values known at positions `before`, interpolated linearly at positions `after`."""
    flat = values.reshape(len(values), -1)
    columns = [np.interp(after, before, column) for column in flat.T]
    return np.stack(columns, axis=-1).reshape(len(after), *values.shape[1:])


class WarmUp:
    """Adaptation between rounds: ladder, metric, and one step size per rung for all chains.

    Parameters
    ----------
    warmup: scans in all, a multiple of `stride`.
    stride: scans between two looks at the parameters.
    position: of the rungs to begin with.
    moves: whether the ladder may change.
    grows: whether it may get more rungs.
    dimension: of the parameters.
    """

    def __init__(
        self,
        warmup: int,
        stride: int,
        position: Float[np.ndarray, " rung"],
        moves: bool,
        grows: bool,
        dimension: int,
    ) -> None:
        self.ends, self.moves, self.grows = round_ends(warmup, stride), moves, grows
        self.stride = stride
        self.position = position
        self.scale = np.ones((len(position), dimension))
        self.step_size = np.full(len(position), INITIAL_STEP_SIZE)
        self.rounds: list[Round] = []
        self._begin_round(None)

    def _begin_round(self, split: Float[np.ndarray, " rung"] | None) -> None:
        self.spread = None if split is None else Spread(split, self.scale.shape[1])
        self.rejected = np.zeros((2, len(self.position) - 1))
        """Tries, and the sum of their rejection probabilities, per pair."""
        self.order: list[Float[np.ndarray, "chain scan rung"]] = []

    def observe(
        self,
        order: Float[np.ndarray, "chain scan rung"],
        rejection: Float[np.ndarray, "chain scan pair"],
        draws: Float[np.ndarray, "chain draw rung dimension"],
    ) -> None:
        """Learn from one chunk: `rejection` is NaN where a pair was not tried; a draw follows every stride."""
        tried = ~np.isnan(rejection)
        self.rejected += np.stack([tried.sum(axis=(0, 1)), np.nansum(rejection, axis=(0, 1))])
        self.order.append(order)
        if self.spread is not None:
            whole = order.shape[1] // self.stride
            self.spread.add(order[:, self.stride - 1 :: self.stride], draws[:, :whole])

    def end_round(self, scans: int, step_size: Float[np.ndarray, "chain rung"]) -> Int[np.ndarray, " new_rung"] | None:
        """Move the rungs, and learn the metric. Returns, if there are more rungs now, the old rung nearest to each.

        The last round keeps the metric, to which its step sizes belong, and the number of rungs, which it has sampled.
        """
        rungs, is_last = len(self.position), len(self.rounds) + 1 == len(self.ends)
        tries, rejected = self.rejected
        rate = np.where(tries > 0, rejected / np.maximum(tries, 1), 0.5)
        self.rounds.append(Round(scans, rungs, float(rate.sum()), float(1 - rate.max(initial=0.0))))
        self.step_size = np.exp(np.log(step_size).mean(axis=0))
        split = threshold(np.concatenate(self.order, axis=1))
        if self.spread is not None and not is_last:
            self.scale = self.spread.scale(self.scale)
        nearest = None
        if self.moves:
            before, wanted = self.position, rungs
            if self.grows and not is_last:
                barriers = np.diff(cumulative(before, rate)(np.arange(int(before[-1]) + 1)))
                wanted = max(rungs, min(MOST_GROWTH * rungs, enough_rungs(barriers)))
            self.position = spaced(before, rate, wanted)
            self.scale = resampled(self.position, before, self.scale)
            self.step_size = np.exp(resampled(self.position, before, np.log(self.step_size)))
            split = resampled(self.position, before, split)
            if wanted != rungs:
                nearest = np.argmin(np.abs(self.position[:, None] - before), axis=1)
        self._begin_round(split)
        return nearest

    def state(self) -> dict[str, np.ndarray]:
        """Everything that `restore` needs."""
        state = {name: getattr(self, name) for name in ("position", "scale", "step_size", "rejected")}
        state["rounds"] = np.array(self.rounds, dtype=float).reshape(-1, 4)
        if self.spread is not None:
            state |= {"split": self.spread.split, "sums": self.spread.sums}
        if self.order:
            state["order"] = np.concatenate(self.order, axis=1)
        return state

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Be as the warm-up was that wrote `state`."""
        self.position, self.scale, self.step_size = state["position"], state["scale"], state["step_size"]
        self.rounds = [Round(int(s), int(k), float(b), float(a)) for s, k, b, a in state["rounds"]]
        self._begin_round(state.get("split"))
        self.rejected = state["rejected"]
        if self.spread is not None:
            self.spread.sums = state["sums"]
        self.order = [state["order"]] if "order" in state else []
