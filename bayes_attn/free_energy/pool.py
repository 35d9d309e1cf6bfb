"""All samples of a run weighed together for any point in control space: the multistate Bennett acceptance ratio (MBAR).

The samples of all rungs are taken as one sample of their mixture. With log q_k the log-density at rung k less that of
the prior, n_k the samples of rung k and f_k = log Z_k, a sample x counts at controls c with the weight

    q_c(x) / sum_k n_k q_k(x) exp(-f_k),

and the f_k are those for which every rung's own weights add up to 1: the minimum of a convex function.

References
----------
Shirts, Chodera, "Statistically optimal analysis of samples from multiple equilibrium states", J. Chem. Phys. 129
(2008), doi:10.1063/1.2978177.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped
from scipy.optimize import minimize

from bayes_attn.diagnostics import estimate
from bayes_attn.errors import require
from bayes_attn.free_energy.resampling import replicate_counts, standard_error
from bayes_attn.posterior import Posterior
from bayes_attn.sampling import Controls, Samples
from bayes_attn.sampling.samples import INDEPENDENT

MOST_SCANS = 500
"""Kept per chain and rung, evenly spaced: neighbouring scans are nearly the same."""
TOLERANCE = 1e-9
"""Of the equations for f, in units of a sample's share."""


@dataclass(frozen=True)
class Pool:
    """The samples of all rungs, with the weights of every replicate by which errors are found.

    Samples are in the order (chain, scan, rung), flattened.
    """

    posterior: Posterior
    path: Controls
    states: PyTree
    """What the likelihood is computed from: parameters, or the order parameters where these are enough."""
    order: Float[np.ndarray, " sample"]
    """The first order parameter, with its sign."""
    chains: int
    blocks: int
    log_normalisation: Float[np.ndarray, "replicate rung"]
    """f_k - f_0, in nats."""
    log_mixture: Float[np.ndarray, " sample"]
    """Log of the whole sample's mixture density less the prior's, with f_0 = 0."""
    relative: Float[np.ndarray, "replicate sample"]
    """How often a sample counts, times the whole sample's mixture density over the replicate's; the first replicate is
    the whole sample. Whatever the point, a replicate's weights are the whole sample's times these."""

    def log_tilt(self, controls: Controls) -> Float[np.ndarray, "point sample"]:
        """log q at controls with arrays of shape (point,)."""
        return _log_tilt(self.posterior, self.states, self.order, controls)

    def whole_weights(self, log_tilt: Float[np.ndarray, " sample"]) -> Float[np.ndarray, " sample"]:
        """The weights of the whole sample at one point, which add up to 1."""
        logs = log_tilt - self.log_mixture
        raw = np.exp(logs - logs.max())
        return raw / raw.sum()

    def log_sums(
        self, log_tilt: Float[np.ndarray, " sample"], values: Shaped[np.ndarray, "sample value"]
    ) -> Float[np.ndarray, "replicate value"]:
        """Logs of the weighted sums of non-negative values at one point, with weights that add up to its Z / Z_0."""
        logs = log_tilt - self.log_mixture
        peak = logs.max()
        with np.errstate(divide="ignore"):
            return peak + np.log(self.relative @ (np.exp(logs - peak)[:, None] * values))

    def means(
        self, log_tilt: Float[np.ndarray, " sample"], values: Shaped[np.ndarray, "sample value"]
    ) -> Float[np.ndarray, "replicate value"]:
        """Means of some values at one point, for every replicate."""
        weights = self.whole_weights(log_tilt)
        sums = self.relative @ (weights[:, None] * np.column_stack([np.ones(len(weights)), values]))
        return sums[:, 1:] / sums[:, :1]

    def error(self, replicates: Float[np.ndarray, "replicate *shape"]) -> Float[np.ndarray, "*shape"]:
        """Standard error of a statistic from its values for every replicate (`resampling.standard_error`)."""
        return standard_error(replicates, self.chains, self.blocks)


def pool(posterior: Posterior, samples: Samples) -> Pool:
    """Weigh the samples of all rungs of a run together.

    Where the posterior offers `log_likelihood_from(order_parameters, load)`, because its likelihood is a function of
    the order parameters, scans are used (at most `MOST_SCANS` per chain and rung); else the recorded draws are.

    Raises
    ------
    InvalidInput: fewer than two chains, or rungs sampled independently.
    """
    require(samples.sampler not in INDEPENDENT, "pool", "samples", "must be of replica exchange", samples.sampler)
    require(samples.posteriors == 1, "pool", "samples", "must be of one posterior (`Samples.of`)", samples.posteriors)
    chains, scans, rungs = samples.log_density.shape
    require(chains >= 2, "pool", "samples", "must have two chains or more", chains)
    thin = samples.schedule.thin
    if hasattr(posterior, "log_likelihood_from"):
        kept = np.arange(scans)[:: max(1, -(-scans // MOST_SCANS))]
        states: PyTree = jax.tree.map(lambda v: _flat(np.asarray(v)[:, kept]), samples.order_parameters)
    else:
        kept = np.arange(thin - 1, scans, thin)
        states = jax.tree.map(lambda v: _flat(np.asarray(v)), samples.params)
    order = np.asarray(samples.order_parameters[0])
    blocks = _blocks(order)
    counts = replicate_counts(chains, blocks)
    block = np.minimum(kept * blocks // scans, blocks - 1)
    counted = np.broadcast_to(counts[:, :, block, None], (*counts.shape[:2], len(kept), rungs))
    counted = counted.reshape(len(counts), -1)
    chosen = _flat(order[:, kept])
    log_tilt = _log_tilt(posterior, states, chosen, samples.path)
    rung = np.broadcast_to(np.arange(rungs), (chains, len(kept), rungs)).ravel()
    log_normalisation, log_mixture = _solved(log_tilt, rung, counted)
    relative = counted * np.exp(log_mixture[:1] - log_mixture)
    return Pool(
        posterior, samples.path, states, chosen, chains, blocks, log_normalisation, log_mixture[0], relative
    )  # fmt: skip


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, *values.shape[3:])


def _blocks(order: Float[np.ndarray, "chain scan rung"]) -> int:
    """Blocks per chain, each at least two autocorrelation times of the slowest rung long."""
    chains, scans, rungs = order.shape
    time = max(chains * scans / max(estimate(order[:, :, rung]).ess, 1.0) for rung in range(rungs))
    return max(1, int(scans / (2 * max(time, 1.0))))


def _log_tilt(
    posterior: Posterior, states: PyTree, order: Float[np.ndarray, " sample"], controls: Controls
) -> Float[np.ndarray, "point sample"]:
    """beta * log_likelihood(load) + size * field * (first order parameter); -inf outside the window."""
    loads, inverse = np.unique(np.asarray(controls.load), return_inverse=True)
    likelihood = np.stack([np.asarray(_log_likelihoods(posterior, states, jnp.asarray(load))) for load in loads])
    total = np.empty((len(inverse), len(order)))
    for point, number in enumerate(inverse):
        beta, field = (float(np.asarray(c)[point]) for c in (controls.inverse_temperature, controls.field))
        tempered = beta * likelihood[number] if beta != 0 else 0.0
        total[point] = tempered + float(posterior.size) * field * order
        if controls.lowest is not None:
            total[point][order < np.asarray(controls.lowest)[point]] = -np.inf
        if controls.highest is not None:
            total[point][order > np.asarray(controls.highest)[point]] = -np.inf
    return total


@eqx.filter_jit
def _log_likelihoods(posterior: Any, states: PyTree, load: Array) -> Float[Array, " sample"]:
    of: Callable[..., Array]
    if hasattr(posterior, "log_likelihood_from"):
        of = posterior.log_likelihood_from
    else:
        # Parameters are kept in single precision; the likelihood of what was kept is computed in double.
        states = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), states)
        of = getattr(posterior, "at_load", lambda _: posterior)(load).log_likelihood
    return jax.vmap(partial(_at, of, load))(states)


def _at(of: Callable[..., Array], load: Array, state: PyTree) -> Array:
    return of(state, load)


def _solved(
    log_tilt: Float[np.ndarray, "rung sample"],
    rung: Int[np.ndarray, " sample"],
    counts: Float[np.ndarray, "replicate sample"],
) -> tuple[Float[np.ndarray, "replicate rung"], Float[np.ndarray, "replicate sample"]]:
    """(log-normalisations, log of the mixture) of every replicate, each from the whole sample's solution on."""
    rungs = len(log_tilt)
    number = np.stack([np.bincount(rung, weights=one, minlength=rungs) for one in counts])
    f = _first_guess(log_tilt, rung)
    # Shares of the mixture under the current solution: later solutions only rescale its rows.
    for _ in range(2):
        log_terms = log_tilt - f[:, None] + np.log(number[0])[:, None]
        peak = log_terms.max(axis=0)
        shares = np.exp(log_terms - peak)
        total = shares.sum(axis=0)
        shares /= total
        f = f + _step(shares, number[0], number[0], counts[0])
    log_terms = log_tilt - f[:, None] + np.log(number[0])[:, None]
    peak = log_terms.max(axis=0)
    shares = np.exp(log_terms - peak)
    total = shares.sum(axis=0)
    shares /= total
    log_total = peak + np.log(total)
    found, mixtures = [], []
    for counted, numbers in zip(counts, number, strict=True):
        change = _step(shares, numbers, number[0], counted)
        found.append(f + change)
        mixtures.append(log_total + np.log((numbers / number[0] * np.exp(-change)) @ shares))
    normalisation = np.stack(found)
    shift = normalisation[:, :1]
    return normalisation - shift, np.stack(mixtures) + shift


def _first_guess(log_tilt: Float[np.ndarray, "rung sample"], rung: Int[np.ndarray, " sample"]) -> np.ndarray:
    """By the average of forward and backward free-energy perturbation between neighbours, at the median."""
    steps = []
    for k in range(len(log_tilt) - 1):
        with np.errstate(invalid="ignore"):
            gain = log_tilt[k + 1] - log_tilt[k]
        both = [gain[(rung == side) & np.isfinite(gain)] for side in (k, k + 1)]
        steps.append(np.mean([np.median(one) if len(one) else 0.0 for one in both]))
    return np.concatenate([[0.0], np.cumsum(steps)])


class _Equations(NamedTuple):
    """What the free energies solve, for one set of numbers and counts."""

    rows: Float[np.ndarray, "rung sample"]
    """Shares of the mixture."""
    base: Float[np.ndarray, " rung"]
    """Log of the rungs' numbers of samples over those that the shares were made with."""
    amount: Float[np.ndarray, " rung"]
    counts: Float[np.ndarray, " sample"]


def _step(
    shares: Float[np.ndarray, "rung sample"],
    number: Float[np.ndarray, " rung"],
    before: Float[np.ndarray, " rung"],
    counts: Float[np.ndarray, " sample"],
) -> Float[np.ndarray, " rung"]:
    """The change of f that solves the equations with these numbers and counts, if `shares` were made with `before`."""
    used = number > 0
    equations = _Equations(shares[used], np.log(number[used] / before[used]), number[used], counts)
    # The sum of all changes is free: the first one stays 0.
    solution = minimize(
        _value, np.zeros(int(used.sum()) - 1), (equations,), "trust-exact", True, _curvature,
        options={"gtol": TOLERANCE},
    )  # fmt: skip
    change = np.zeros(len(number))
    change[used] = np.concatenate([[0.0], solution.x])
    return change


def _value(rest: Float[np.ndarray, " change"], of: _Equations) -> tuple[float, Float[np.ndarray, " change"]]:
    """The convex function, per sample, and its slope."""
    change, total = np.concatenate([[0.0], rest]), of.counts.sum()
    factor = np.exp(of.base - change)
    mixed = factor @ of.rows
    objective = (of.counts @ np.log(mixed) + of.amount @ change) / total
    return float(objective), ((of.amount - factor * (of.rows @ (of.counts / mixed))) / total)[1:]


def _curvature(rest: Float[np.ndarray, " change"], of: _Equations) -> Float[np.ndarray, "change change"]:
    factor = np.exp(of.base - np.concatenate([[0.0], rest]))
    mixed = factor @ of.rows
    root = (factor[:, None] * of.rows) * (np.sqrt(of.counts) / mixed)
    diagonal = np.diag(factor * (of.rows @ (of.counts / mixed)))
    return ((diagonal - root @ root.T) / of.counts.sum())[1:, 1:]
