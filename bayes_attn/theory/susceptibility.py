"""How much the copy mass answers a field below the transition: is there a precursor? (theory, sections 4 and 5)

The susceptibility is chi = dm/dh = R var(m), with R the independent rows. For softmax attention it is that of the
disordered phase by itself, whatever the other phase weighs; it stays finite at the transition and diverges only at the
spinodal beyond. For linear attention it is exact at finite L.
"""

import numpy as np
from jaxtyping import Float
from scipy.interpolate import make_interp_spline
from scipy.optimize import root_scalar

from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory.linear import order_parameter_law
from bayes_attn.theory.softmax import profiles


def susceptibility(
    posterior: CopyPosterior, loads: Float[np.ndarray, " load"] | list[float]
) -> Float[np.ndarray, " load"]:
    """R var(m) at each load; dimensionless.

    Softmax: 1 / (dh/dm) at the smallest m that is a minimum of F without a field, the leading order in 1/R. That is the
    disordered phase up to its spinodal and the copy phase beyond; in a crossover, the only phase. Linear: L times the
    variance of m in the exact law.

    Raises
    ------
    InvalidInput: there is no theory for the posterior.
    ArithmeticError: no solution was found.
    """
    if posterior.attention == "linear":
        return np.array([posterior.size * order_parameter_law(posterior, load).squared_copy_mass for load in loads])
    curves = profiles(posterior, loads)
    found = []
    for copy_mass, field in zip(np.asarray(curves.copy_mass), np.asarray(curves.field), strict=True):
        known = np.isfinite(field)
        log_odds = np.log(copy_mass[known]) - np.log1p(-copy_mass[known])
        curve = make_interp_spline(log_odds, field[known], k=5)
        # The first upward crossing of 0.
        upward = np.flatnonzero((field[known][:-1] < 0) & (field[known][1:] >= 0))
        if not len(upward):
            found.append(np.nan)
            continue
        root = root_scalar(curve, bracket=(log_odds[upward[0]], log_odds[upward[0] + 1])).root
        m = 1 / (1 + np.exp(-root))
        found.append(m * (1 - m) / float(curve.derivative()(root)))
    return np.array(found)
