"""Where two phases coexist along the data amount, by equal weight and by equal height, and the heat between them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import root_scalar

from bayes_attn.free_energy.pool import Pool
from bayes_attn.free_energy.profile import Curves, Profile, bin_edges, curves, magnitudes, resampled, summary
from bayes_attn.sampling import Controls
from bayes_attn.sampling.adaptation import threshold

SCOUTS = 33
"""Loads at which a whole range is looked at."""
FINE = 9
"""Loads about the transition at which profiles are taken."""
LOG_ODDS = 3.0
"""How far the fine loads reach on either side of equal weight, in log-odds of the phases."""
WIDE = 8.0
"""The same for the moments of the order parameter, which have tails."""
LOAD_STEP = 1e-4
"""Relative, of the derivative by the load."""


@dataclass(frozen=True)
class Coexistence:
    """Two phases along the load, from the samples of a run; errors by resampling (`Pool.error`)."""

    equal_weight: float
    """Load at which both phases have the same weight, cut at the valley between them."""
    equal_weight_error: float
    equal_height: float
    """Load at which both peaks of p(m) are equally high."""
    equal_height_error: float
    shift: float
    """Equal weight less equal height; tends to 0 as the size grows."""
    shift_error: float
    width: float
    """Distance of the loads at which the copy phase has the weights 0.1 and 0.9."""
    barrier: float
    """ln(peak / valley) at equal height, in kT."""
    barrier_error: float
    latent_heat: float
    """Jump of dF/d(load) at equal weight from the disordered to the copy phase, F = -log Z: nats per unit of load."""
    latent_heat_error: float
    jump: float
    """Difference of the phases' mean order parameters at equal weight."""
    jump_error: float
    slope: float
    """dh/d(load) of the line of coexistence where it meets h = 0: latent heat over size times jump (Clausius and
    Clapeyron)."""
    slope_error: float
    profile: Profile
    """At equal height."""


@dataclass(frozen=True)
class Rise:
    """Where the order parameter rises along the load."""

    load: float
    """At which half of the weight lies above the cut."""
    cut: float
    """Order parameter that splits the samples best (Otsu) where their variance is largest."""
    sharpness: float
    """Slope of the log-odds of lying above the cut, per unit of load."""
    edges: Float[np.ndarray, " edge"]
    """Bins for profiles about this load."""
    loads: Float[np.ndarray, " load"]
    """Where the next two are known."""
    mean: Float[np.ndarray, " load"]
    """Of the order parameter."""
    binder: Float[np.ndarray, " load"]
    """Binder's cumulant 1 - <m^4> / (3 <m^2>^2)."""
    binder_minimum: float
    binder_minimum_error: float
    fluctuation: float
    """Largest variance of the order parameter over the loads, in units of that at the lowest load."""
    fluctuation_error: float


def along(loads: Float[np.ndarray, " point"] | list[float], field: float = 0.0) -> Controls:
    """Controls at some loads, at inverse temperature 1."""
    return Controls(np.ones(len(loads)), np.asarray(loads, dtype=float), np.full(len(loads), field))


def rise(pool: Pool, low: float, high: float) -> Rise | None:
    """Where the order parameter rises between two loads; None if half of the weight does not change sides there."""
    order, loads = magnitudes(pool), np.linspace(low, high, SCOUTS)
    weights = [pool.whole_weights(tilt) for tilt in pool.log_tilt(along(loads))]
    spread = [weight @ order**2 - (weight @ order) ** 2 for weight in weights]
    cut, _ = _split(order, weights[int(np.argmax(spread))])

    def log_odds_of(weight: Float[np.ndarray, " sample"]) -> float:
        above = float(weight @ (order > cut))
        return float(np.log(max(above, 1e-300)) - np.log(max(1 - above, 1e-300)))

    def log_odds(load: float) -> float:
        return log_odds_of(pool.whole_weights(pool.log_tilt(along([load]))[0]))

    odds = np.array([log_odds_of(weight) for weight in weights])
    crossing = np.flatnonzero((odds[:-1] < 0) & (odds[1:] >= 0))
    if len(crossing) == 0:
        return None
    load = root_scalar(log_odds, bracket=tuple(loads[crossing[0] : crossing[0] + 2]), xtol=1e-7 * high).root
    step = 1e-3 * load
    sharpness = (log_odds(load + step) - log_odds(load - step)) / (2 * step)
    _, edges = _split(order, pool.whole_weights(pool.log_tilt(along([load]))[0]))
    # Where the order parameter jumps, its fluctuations peak between two scouts.
    near = load + np.linspace(-WIDE, WIDE, SCOUTS) / max(sharpness, WIDE / load)
    loads = np.unique(np.concatenate([loads, near[(near > low) & (near < high)]]))
    powers = np.stack([order, order**2, order**4], axis=1)
    first, second, fourth = np.moveaxis(
        np.stack([pool.means(tilt, powers) for tilt in pool.log_tilt(along(loads))]), -1, 0
    )
    variance = second - first**2
    fluctuation = variance.max(axis=0) / variance[0]
    binder = 1 - fourth / (3 * second**2)
    return Rise(
        load=float(load),
        cut=cut,
        sharpness=sharpness,
        edges=edges,
        loads=loads,
        mean=first[:, 0],
        binder=binder[:, 0],
        binder_minimum=float(binder[:, 0].min()),
        binder_minimum_error=float(pool.error(binder.min(axis=0))),
        fluctuation=float(fluctuation[0]),
        fluctuation_error=float(pool.error(fluctuation)),
    )


def _split(
    order: Float[np.ndarray, " sample"], weights: Float[np.ndarray, " sample"]
) -> tuple[float, Float[np.ndarray, " edge"]]:
    drawn = resampled(order, weights)
    cut = float(threshold(drawn[None, :, None])[0])
    return cut, bin_edges(order, drawn, cut)


def deepest(pool: Pool, found: Rise) -> Profile | None:
    """The profile with the deepest valley among loads about the rise."""
    shown = [one for one in _about(pool, found)[1] if one is not None]
    if not shown:
        return None
    return summary(pool, max(shown, key=lambda one: float(one.depth()[0])))


def _about(pool: Pool, found: Rise) -> tuple[Float[np.ndarray, " point"], list[Curves | None]]:
    reach = min(LOG_ODDS / found.sharpness, 0.3 * found.load)
    loads = found.load + np.linspace(-reach, reach, FINE)
    return loads, [curves(pool, tilt, found.edges) for tilt in pool.log_tilt(along(loads))]


def coexistence(pool: Pool, found: Rise) -> Coexistence | None:
    """Two phases about the load where the order parameter rises.

    None where no two peaks of equal height, with both phases of equal weight nearby, are seen: the profile has a single
    peak, or the run does not reach far enough.
    """
    loads, profiles = _about(pool, found)
    none = np.full(len(pool.relative), np.nan)
    two = [one is not None and one.peaks is not None for one in profiles]
    odds = np.stack([one.log_odds() if ok and one else none for one, ok in zip(profiles, two, strict=True)])
    heights = np.stack([one.height_difference() if ok and one else none for one, ok in zip(profiles, two, strict=True)])
    weight, height = _roots(loads, odds), _roots(loads, heights)
    if not (np.isfinite(weight[0]) and np.isfinite(height[0])):
        return None
    at_height = curves(pool, pool.log_tilt(along([height[0]]))[0], found.edges)
    if at_height is None or at_height.peaks is None:
        return None
    low, high, valley = at_height.extrema()
    barrier = 0.5 * (low + high) - valley
    heat, jump = _heat(pool, float(weight[0]), float(at_height.grid[at_height.valley]))
    slope = heat / (jump * float(pool.posterior.size))
    return Coexistence(
        equal_weight=float(weight[0]),
        equal_weight_error=float(pool.error(weight)),
        equal_height=float(height[0]),
        equal_height_error=float(pool.error(height)),
        shift=float(weight[0] - height[0]),
        shift_error=float(pool.error(weight - height)),
        width=2 * np.log(9.0) / found.sharpness,
        barrier=float(barrier[0]),
        barrier_error=float(pool.error(barrier)) if at_height.resolved else float("inf"),
        latent_heat=float(heat[0]),
        latent_heat_error=float(pool.error(heat)),
        jump=float(jump[0]),
        jump_error=float(pool.error(jump)),
        slope=float(slope[0]),
        slope_error=float(pool.error(slope)),
        profile=summary(pool, at_height),
    )


def _roots(
    at: Float[np.ndarray, " point"], values: Float[np.ndarray, "point replicate"]
) -> Float[np.ndarray, " replicate"]:
    """Where each column crosses 0 upwards, by a parabola through three points about the crossing; NaN if nowhere."""
    found = np.full(values.shape[1], np.nan)
    for i, column in enumerate(values.T):
        known = np.flatnonzero(np.isfinite(column))
        of, where = column[known], at[known]
        crossing = np.flatnonzero((of[:-1] < 0) & (of[1:] >= 0))
        if len(crossing) and len(of) >= 3:
            first = int(np.clip(crossing[0], 0, len(of) - 3))
            found[i] = np.polyfit(of[first : first + 3], where[first : first + 3], 2)[-1]
    return found


def _heat(
    pool: Pool, load: float, cut: float
) -> tuple[Float[np.ndarray, " replicate"], Float[np.ndarray, " replicate"]]:
    """(latent heat, jump of the order parameter) at one load, for every replicate."""
    step, order = LOAD_STEP * load, magnitudes(pool)
    below, here, above = pool.log_tilt(along([load - step, load, load + step]))
    values = np.stack([np.ones(len(order)), (above - below) / (2 * step), order], axis=1)
    copied = (order > cut)[:, None]
    (disordered, cold_force, low), (copy, hot_force, high) = (
        pool.means(here, values * phase).T for phase in (~copied, copied)
    )
    # F = -log Z, so that dF/d(load) is minus the mean of the force.
    return cold_force / disordered - hot_force / copy, high / copy - low / disordered


def phase_normalisations(
    pool: Pool, loads: Float[np.ndarray, " point"], cut: float
) -> tuple[Float[np.ndarray, "point phase"], Float[np.ndarray, "point phase"], Float[np.ndarray, " point"]]:
    """Log-normalisation of each phase along the load, relative to the path's first rung, in nats.

    Phases: order parameter up to the `cut`, and above it. Minus the values are the free energies of the two branches,
    which cross where both have equal weight, with the latent heat as the difference of their slopes.

    Returns
    -------
    (values, their errors, errors of the second phase's less the first's, which share most of the noise).
    """
    above = magnitudes(pool) > cut
    phases = np.stack([~above, above], axis=1)
    replicates = np.stack([pool.log_sums(tilt, phases) for tilt in pool.log_tilt(along(loads))], axis=1)
    return replicates[0], pool.error(replicates), pool.error(replicates[:, :, 1] - replicates[:, :, 0])


def field_at_coexistence(
    pool: Pool, loads: Float[np.ndarray, " point"], cut: float, fields: tuple[float, float]
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """(field, error) at which the weight above and below the `cut` is the same, at each load: the line of coexistence.

    `fields` are bounds of the field. NaN where the weights do not change sides between them.
    """
    order, rows = magnitudes(pool), float(pool.posterior.size)
    fine = np.linspace(*fields, 65)
    phases = np.stack([order <= cut, order > cut], axis=1)
    found = np.full((len(loads), len(pool.relative)), np.nan)
    for i, tilt in enumerate(pool.log_tilt(along(loads))):
        at = [tilt + rows * field * order for field in fine]
        with np.errstate(divide="ignore"):
            odds = np.array([np.diff(np.log(pool.whole_weights(one) @ phases))[0] for one in at])
        (crossing,) = np.nonzero((odds[:-1] < 0) & (odds[1:] >= 0))
        if len(crossing):
            near = slice(max(crossing[0] - 1, 0), crossing[0] + 3)
            found[i] = _roots(fine[near], np.stack([np.diff(pool.log_sums(one, phases))[:, 0] for one in at[near]]))
    return found[:, 0], pool.error(found.T)
