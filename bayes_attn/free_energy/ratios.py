"""Ratios of normalisations from the swaps of a run: stepping stone and thermodynamic integration between neighbours.

At a scan that tries the swap of rungs (k, k + 1), the states of both are weighed under the other's controls. That gives
the ratio Z_{k+1} / Z_k twice: forward, as the mean of p_{k+1} / p_k over the states of k, and backward over those of
k + 1. And the means of log(p_{k+1} / p_k) at both are the ends of an integral over the force on the way between.

References
----------
Xie, Lewis, Fan, Kuo, Chen, "Improving marginal likelihood estimation for Bayesian phylogenetic model selection",
Syst. Biol. 60 (2011), doi:10.1093/sysbio/syq085. Bennett, "Efficient estimation of free energy differences from Monte
Carlo data", J. Comput. Phys. 22 (1976), doi:10.1016/0021-9991(76)90078-4. Friel, Hurn, Wyse, "Improving power posterior
estimation of statistical evidence", Stat. Comput. 24 (2014), doi:10.1007/s11222-013-9397-1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import root_scalar
from scipy.special import expit

from bayes_attn.errors import require
from bayes_attn.sampling import Samples
from bayes_attn.sampling.samples import INDEPENDENT, swaps_tried

Gains = Float[np.ndarray, "chain scan"]
Estimates = tuple[float, float, float]


@dataclass(frozen=True)
class LogRatios:
    """log(Z_k / Z_0) along a path, in nats, with Z_0 that of the first rung."""

    value: Float[np.ndarray, " rung"]
    error: Float[np.ndarray, " rung"]
    """Standard error: the jackknife's over chains."""
    forward: Float[np.ndarray, " rung"]
    backward: Float[np.ndarray, " rung"]

    @property
    def gap(self) -> float:
        """Largest difference of `forward` and `backward` in a single step of the path, in nats.

        In a single step, for along a whole path the noise of many sound steps adds up. It is no criterion by itself:
        where a phase is first seen at rung k + 1, the forward mean over rung k misses it, and is too small by a nat or
        so with an error that does not show it; Bennett's ratio, whose terms are bounded, is not.
        """
        return float(np.max(np.abs(np.diff(self.forward) - np.diff(self.backward)), initial=0.0))


def stepping_stone(samples: Samples) -> LogRatios:
    """Normalisations along the path of a run, relative to the first rung.

    The value is Bennett's acceptance ratio between neighbours, the best use of both directions; forward and backward
    are the estimates from one side each, which agree where neighbours overlap.

    Raises
    ------
    InvalidInput: the run did not swap, or has fewer than two chains (no error could be given).
    """
    return _from_swaps(samples, "stepping_stone", bennett_ratio)


def thermodynamic_integration(samples: Samples) -> LogRatios:
    """The same by integrating the mean force between neighbouring rungs, with the trapezoidal rule and its correction.

    On the straight way between two rungs' log-densities the force is their difference, and it rises with its variance
    as slope: so the rule's correction is known, and the uncorrected ends are bounds on the integral, which `forward`
    (lower) and `backward` (upper) hold. For smooth paths: where a transition lies between two rungs the force jumps,
    and the gap shows it. Raises as `stepping_stone`.
    """
    return _from_swaps(samples, "thermodynamic_integration", _one_integral)


def _from_swaps(samples: Samples, owner: str, one: Callable[[Gains, Gains], Estimates]) -> LogRatios:
    require(samples.sampler not in INDEPENDENT, owner, "samples", "must be of replica exchange", samples.sampler)
    require(samples.posteriors == 1, owner, "samples", "must be of one posterior (`Samples.of`)", samples.posteriors)
    chains = len(samples.gain)
    require(chains >= 2, owner, "samples", "must have two chains or more", chains)
    number = samples.schedule.warmup + np.arange(samples.gain.shape[1])
    tried = swaps_tried(samples.rungs - 1, number)
    gain = np.asarray(samples.gain)
    pairs = [(gain[:, tried[:, k], k], gain[:, tried[:, k], k + 1]) for k in range(samples.rungs - 1)]

    def along(chosen: np.ndarray) -> Float[np.ndarray, "3 rung"]:
        steps = [one(up[chosen], down[chosen]) for up, down in pairs]
        return np.concatenate([np.zeros((3, 1)), np.cumsum(np.array(steps).T, axis=1)], axis=1)

    every = np.arange(chains)
    value, forward, backward = along(every)
    without = np.array([along(np.delete(every, chain))[0] for chain in every])
    error = np.sqrt((chains - 1) * without.var(axis=0))
    return LogRatios(value, error, forward, backward)


def _one_integral(up: Gains, down: Gains) -> Estimates:
    """(corrected trapezoid, lower bound, upper bound) of log(Z_{k+1} / Z_k) from the gains of both rungs' states."""
    low, high = float(up.mean()), float(-down.mean())
    return 0.5 * (low + high) - (float(down.var()) - float(up.var())) / 12, low, high


def bennett_ratio(up: Gains, down: Gains) -> Estimates:
    """(Bennett, forward, backward) estimates of log(Z_{k+1} / Z_k) from the gains of both rungs' states."""
    up, down = up.ravel(), down.ravel()
    forward, backward = _log_mean_exp(up), -_log_mean_exp(down)
    if not np.isfinite(forward) or not np.isfinite(backward):
        return float("nan"), forward, backward

    def excess(ratio: float) -> float:
        return float(expit(up - ratio).sum() - expit(down + ratio).sum())

    # The root need not lie between both estimates where neighbours hardly overlap; the excess falls with the ratio.
    low, high = min(forward, backward), max(forward, backward)
    step = 1.0
    while not (excess(low) > 0 > excess(high)):
        low, high, step = low - step, high + step, 2 * step
    return float(root_scalar(excess, bracket=(low, high), xtol=1e-12).root), forward, backward


def _log_mean_exp(values: Float[np.ndarray, " sample"]) -> float:
    peak = float(values.max())
    return peak + float(np.log(np.mean(np.exp(values - peak)))) if np.isfinite(peak) else peak


def phase_weight(ratios: LogRatios) -> tuple[float, float]:
    """Share of the last rung's phase among those of the first and the last rung, with its error.

    For a path whose ends are the two phases of one posterior (`sampling.four_legs`): the ratio of their normalisations
    is the ratio of their weights.
    """
    weight = float(expit(ratios.value[-1]))
    return weight, weight * (1 - weight) * float(ratios.error[-1])
