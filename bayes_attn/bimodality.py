"""Secondary measures of two humps in a sampled scalar, each with what it assumes and where it is fooled.

The primary one is ln(peak / valley) of the reweighted free-energy profile; it lives in `free_energy`. Heavy libraries
are imported inside the functions.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from bayes_attn.errors import require, require_integer

MOST_SCANS = 5_000
"""Of a chain in the dip test; a longer one is thinned, which costs correlated draws little."""
MOST_DRAWS = 10_000
"""Of all chains in the mixture; more are thinned."""
STARTS = 4
"""Of expectation maximisation for the mixture; the best is kept."""


@dataclass(frozen=True)
class DipTest:
    """Hartigan's dip with a p-value for samples with memory."""

    dip: float
    """Mean over the chains of each chain's dip: 0 for one hump, at most 1/4."""
    p_value: float
    """Of a single hump; at least 1 / (1 + surrogates)."""


@dataclass(frozen=True)
class Mixture:
    """Two Gaussians fitted to samples, in the order of their means, and the evidence against one."""

    bic_difference: float
    """BIC of one Gaussian less that of two, with the effective sample size: positive favours two."""
    means: Float[np.ndarray, " component"]
    standard_deviations: Float[np.ndarray, " component"]
    weights: Float[np.ndarray, " component"]


def _thinned(values: Float[np.ndarray, "chain scan"], most: int) -> Float[np.ndarray, "chain kept"]:
    """Scans at even distances, at most `most` of a chain, in double precision."""
    every = -(-values.shape[1] // max(1, most))
    return values[:, ::every].astype(float)


def dip_test(values: Float[np.ndarray, "chain scan"], seed: int = 0, surrogates: int = 200) -> DipTest:
    """Test of a single hump by Hartigan's dip, its null distribution from series with the samples' own memory.

    The dip is the least distance between the empirical and any unimodal distribution function. It is taken of each
    chain by itself and averaged: chains that sit in different places, and stay, are no evidence. The classical table
    holds for independent draws. Here the null is from Gaussian series with the autocovariance of the samples about the
    mean of all chains, so that chains which disagree widen it, mapped to uniform marginals, the least favourable
    unimodal law. They are drawn exactly, by circulant embedding: the periodogram of a series padded with as many zeros
    is the non-negative spectrum of its autocovariance, without wrapping around.

    Assumes: the samples' memory is that of a Gaussian series seen through a monotone function, but for repeated values
    (rejected proposals), at which the surrogates repeat as well. Fooled by chains that stand almost still and then jump
    to a fresh draw: few clumps look like several humps. Blind to humps that only the chains together show, and to a
    second hump of small weight.

    References
    ----------
    Hartigan, Hartigan, Ann. Stat. 13 (1985), doi:10.1214/aos/1176346577: the dip, and the uniform law as the null.
    Davies, Harte, Biometrika 74 (1987), doi:10.1093/biomet/74.1.95: circulant embedding.
    Theiler et al., Physica D 58 (1992), doi:10.1016/0167-2789(92)90102-S: tests by surrogate series.
    """
    from diptest import dipstat

    require_integer("dip_test", "surrogates", surrogates, least=1)
    values = _thinned(values, MOST_SCANS)
    chains, scans = values.shape
    if np.ptp(values) == 0:
        return DipTest(0.0, 1.0)

    def mean_dip(series: np.ndarray) -> float:
        return float(np.mean(np.array([dipstat(chain) for chain in series], dtype=float)))

    generator = np.random.default_rng(seed)
    centred = (values - values.mean()) / values.std()
    amplitude = np.sqrt(np.mean(np.abs(np.fft.rfft(centred, 2 * scans)) ** 2, axis=0) / scans)
    # The last scan that brought a new value: a tie is a jump of the distribution function, and so part of the dip.
    moved = np.diff(values, axis=1, prepend=np.inf) != 0
    last_move = np.maximum.accumulate(np.where(moved, np.arange(scans), 0), axis=1)
    dip, exceeded = mean_dip(values), 0
    for _ in range(surrogates):
        noise = np.fft.rfft(generator.normal(size=(chains, 2 * scans)))
        series = np.fft.irfft(noise * amplitude, 2 * scans)[:, :scans]
        exceeded += mean_dip(ndtr(np.take_along_axis(series, last_move, axis=1))) >= dip
    return DipTest(dip, (1 + exceeded) / (1 + surrogates))


def gaussian_mixture(values: Float[np.ndarray, "chain scan"], effective_sample_size: float) -> Mixture:
    """Two Gaussians against one by the Bayesian information criterion (BIC).

    For samples with memory the log-likelihood counts for `effective_sample_size` draws, of as many as there are, and
    every parameter costs ln(effective_sample_size).

    Assumes that each phase is a Gaussian. Fooled by a single skewed or heavy-tailed peak, which two Gaussians fit
    better than one does: two components are not two humps. Fooled by chains stuck in different places, unless the
    effective sample size tells of it (arviz's does).

    References
    ----------
    Schwarz, Ann. Stat. 6 (1978), doi:10.1214/aos/1176344136.
    """
    from sklearn.mixture import GaussianMixture

    require(
        bool(1 <= effective_sample_size < np.inf),
        "gaussian_mixture",
        "effective_sample_size",
        "must be a finite number of at least 1",
        effective_sample_size,
    )
    require(bool(np.ptp(values) > 0), "gaussian_mixture", "values", "must not all be the same", values.flat[0])
    values = _thinned(values, MOST_DRAWS // len(values))
    effective_sample_size = min(effective_sample_size, float(values.size))
    # In units of the spread, since the library regularises variances by an absolute number.
    centre, spread = float(values.mean()), float(values.std())
    points = ((values - centre) / spread).reshape(-1, 1)
    fits = [
        GaussianMixture(
            components, tol=1e-5, max_iter=5_000, n_init=STARTS, init_params="random_from_data", random_state=0
        ).fit(points)
        for components in (1, 2)
    ]
    # Free numbers: a mean and a spread for each component, and a weight for each but one.
    bic = [
        -2 * effective_sample_size * fit.score(points) + free * np.log(effective_sample_size)
        for fit, free in zip(fits, (2, 5), strict=True)
    ]
    means, variances, weights = (
        np.asarray(found).ravel() for found in (fits[1].means_, fits[1].covariances_, fits[1].weights_)
    )
    order = np.argsort(means)
    return Mixture(
        float(bic[0] - bic[1]), centre + spread * means[order], spread * np.sqrt(variances[order]), weights[order]
    )


def ashmans_d(mixture: Mixture) -> float:
    """Separation of two Gaussians: distance of the means over the root mean square of the standard deviations.

    Above 2 they are cleanly apart. Takes for granted that there are two, and says nothing about their weights.

    References
    ----------
    Ashman, Bird, Zepf, Astron. J. 108 (1994), doi:10.1086/117248.
    """
    return float(np.ptp(mixture.means) / np.sqrt(np.mean(mixture.standard_deviations**2)))


@dataclass(frozen=True)
class Humps:
    """The three secondary measures of one scalar."""

    dip: DipTest
    mixture: Mixture
    separation: float
    """Ashman's D of the mixture."""


def humps(values: Float[np.ndarray, "chain scan"], effective_sample_size: float, seed: int = 0) -> Humps:
    """All three of one scalar that is not constant."""
    mixture = gaussian_mixture(values, effective_sample_size)
    return Humps(dip_test(values, seed), mixture, ashmans_d(mixture))
