"""Standard errors by resampling blocks, chains and data sets: never from single draws (theory, section 6).

Units nest: a data set has chains, a chain has blocks of correlated scans. Resampling all levels one inside the other
would count the lower ones twice: with four chains that agree, errors would come out a third too large. So each level is
resampled by itself, and the largest error counts:

* blocks of at least two autocorrelation times, drawn anew within each chain (bootstrap): right when chains agree;
* whole chains, left out one at a time (jackknife): noisy with few chains, but sees chains that do not agree;
* the number of crossings between phases bounds the error of their weights from below (`crossing_error`);
* whole data sets: `smear` tells the spread of their true values from the errors within each.

References
----------
Efron, Tibshirani, "An Introduction to the Bootstrap" (1993). Ren, Lai, Tong, Aminzadeh, Hou, Lai, "Nonparametric
bootstrapping for hierarchical data", J. Appl. Stat. 37 (2010), doi:10.1080/02664760903046102: resample the highest
level only.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

BOOTSTRAPS = 64
LEAST_BLOCKS = 4
"""Blocks per chain, fewer than which say nothing: then the chains alone do."""


def replicate_counts(chains: int, blocks: int, seed: int = 0) -> Float[np.ndarray, "replicate chain block"]:
    """How often each block counts: in the whole sample, without each chain in turn, and in the bootstraps."""
    whole = np.ones((1, chains, blocks))
    without = np.broadcast_to(1.0 - np.eye(chains)[:, :, None], (chains, chains, blocks))
    if blocks < LEAST_BLOCKS:
        return np.concatenate([whole, without])
    drawn = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), size=(BOOTSTRAPS, chains))
    return np.concatenate([whole, without, drawn])


def standard_error(
    replicates: Float[np.ndarray, "replicate *shape"], chains: int, blocks: int
) -> Float[np.ndarray, "*shape"]:
    """The larger of the bootstrap's error over blocks and the jackknife's over chains.

    `replicates` are a statistic's values with `replicate_counts`; NaN where a replicate does not have it, and the error
    is infinite where a fifth of them do not.
    """
    without, drawn = replicates[1 : 1 + chains], replicates[1 + chains :]
    found = np.zeros(replicates.shape[1:])
    for values, factor in ((without, chains - 1.0), (drawn, blocks / max(blocks - 1.0, 1.0))):
        if not len(values):
            continue
        known = np.isfinite(values)
        number = np.maximum(known.sum(axis=0), 1)
        kept = np.where(known, values, 0.0)
        variance = np.where(known, (values - kept.sum(axis=0) / number) ** 2, 0.0).sum(axis=0) / number
        enough = known.sum(axis=0) > 0.8 * len(values)
        found = np.maximum(found, np.where(enough, np.sqrt(factor * variance), np.inf))
    return np.asarray(found)


def crossing_error(round_trips: int) -> float:
    """Standard error of the log-odds of two phases from how often samples went to and fro: sqrt(2 / round trips).

    The odds are the ratio of the total times in both phases, each a sum of as many stays as there were round trips; for
    stays of exponential length the logarithm of either sum varies by 1 / round trips. Where phases mix slowly, blocks
    and chains see too few of them to know this. Infinite without a round trip.
    """
    return float(np.sqrt(2 / round_trips)) if round_trips > 0 else float("inf")


@dataclass(frozen=True)
class Smear:
    """How a quantity varies from data set to data set, apart from the error within each."""

    mean: float
    error: float
    """Of the mean over data sets, from whole sets."""
    smear: float
    """Standard deviation of the true values; 0 if the sets differ no more than their errors."""
    smear_error: float
    within: float
    """Root mean square error within one set."""


def smear(values: Float[np.ndarray, " set"], errors: Float[np.ndarray, " set"], seed: int = 0) -> Smear:
    """Mean and smear of a quantity measured per data set; errors by the bootstrap over sets."""

    def spread(chosen: np.ndarray) -> np.ndarray:
        of, error = values[chosen], errors[chosen]
        return np.asarray(np.sqrt(np.maximum(of.var(axis=-1, ddof=1) - np.mean(error**2, axis=-1), 0.0)))

    sets = len(values)
    drawn = np.random.default_rng(seed).integers(sets, size=(20 * BOOTSTRAPS, sets))
    return Smear(
        mean=float(values.mean()),
        error=float(values.std(ddof=1) / np.sqrt(sets)),
        smear=float(spread(np.arange(sets))),
        smear_error=float(spread(drawn).std()),
        within=float(np.sqrt(np.mean(errors**2))),
    )
