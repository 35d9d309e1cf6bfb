"""How a quantity depends on the size: constant, growing or a power, told apart by Akaike's criterion.

A barrier that grows with the size is the mark of a first-order transition (Lee and Kosterlitz); at a second-order one
it tends to a constant, and fluctuations grow as a power instead.

References
----------
Lee, Kosterlitz, "New numerical method to study phase transitions", Phys. Rev. Lett. 65 (1990),
doi:10.1103/PhysRevLett.65.137. Akaike, "A new look at the statistical model identification", IEEE Trans. Autom. Control
19 (1974), doi:10.1109/TAC.1974.1100705.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.optimize import curve_fit

from bayes_attn.errors import require

Law = Literal["constant", "growing", "power"]
LAWS: dict[Law, tuple[str, Callable[..., Float[np.ndarray, " size"]]]] = {
    "constant": ("b", lambda size, b: b + 0 * size),
    "growing": ("b + a (size - mean size)", lambda size, b, a: b + a * (size - size.mean())),
    "power": ("b (size / mean size)^a", lambda size, b, a: b * (size / size.mean()) ** a),
}
CLEAR = 6.0
"""Difference of Akaike's criterion from which on one law is clearly better: odds of exp(3) = 20."""
LEAST_SIZES = 4
"""Sizes needed to say that something grows (theory, section 6)."""


@dataclass(frozen=True)
class Fit:
    """One law fitted to a quantity over sizes."""

    law: Law
    formula: str
    parameters: tuple[float, ...]
    """b, and a where the law has it: slope per unit of size, or exponent."""
    errors: tuple[float, ...]
    chi_squared: float
    degrees_of_freedom: int
    aic: float
    """Akaike's criterion, chi^2 + 2 (number of parameters): lower is better."""

    def __call__(self, size: Float[np.ndarray, " at"], fitted: Float[np.ndarray, " size"]) -> Float[np.ndarray, " at"]:
        """The law at other sizes; `fitted` are those of the fit."""
        shifted = {"constant": size, "growing": size - fitted.mean(), "power": size / fitted.mean()}[self.law]
        if self.law == "constant":
            return np.full(len(size), self.parameters[0])
        b, a = self.parameters
        return b + a * shifted if self.law == "growing" else b * shifted**a


@dataclass(frozen=True)
class Growth:
    """Whether a quantity grows with the size."""

    fits: tuple[Fit, ...]
    """All laws, the best one first."""
    advantage: float
    """Akaike's criterion of the constant less that of the best growing law: positive where it grows."""
    slope: float
    """Per unit of size, of the straight line."""
    slope_error: float
    exponent: float
    exponent_error: float

    @property
    def grows(self) -> bool | None:
        """True or False where one law is clearly better, None where the sizes do not tell."""
        if self.advantage > CLEAR and self.slope > 0:
            return True
        return False if self.advantage < 0 or self.slope <= 0 else None


def growth(
    sizes: Float[np.ndarray, " size"], values: Float[np.ndarray, " size"], errors: Float[np.ndarray, " size"]
) -> Growth:
    """Fit the laws to positive sizes, with standard errors as weights.

    The laws are only meant to tell growth from none: parameters' errors are scaled by the root of chi^2 per degree of
    freedom where that is above 1.

    Raises
    ------
    InvalidInput: fewer than three sizes, or an error that is not positive.
    """
    require(len(sizes) >= 3, "growth", "sizes", "must be three or more", len(sizes))
    bad = errors[~(errors > 0)]
    require(len(bad) == 0, "growth", "errors", "must be positive", bad.tolist())
    found = {law: _fit(law, np.asarray(sizes, dtype=float), values, errors) for law in LAWS}
    best_growing = min((found["growing"], found["power"]), key=lambda fit: fit.aic)
    return Growth(
        fits=tuple(sorted(found.values(), key=lambda fit: fit.aic)),
        advantage=found["constant"].aic - best_growing.aic,
        slope=found["growing"].parameters[1],
        slope_error=found["growing"].errors[1],
        exponent=found["power"].parameters[1],
        exponent_error=found["power"].errors[1],
    )


def _fit(
    law: Law, sizes: Float[np.ndarray, " size"], values: Float[np.ndarray, " size"], errors: Float[np.ndarray, " size"]
) -> Fit:
    formula, of = LAWS[law]
    mean = float(np.average(values, weights=errors**-2))
    guess = {"constant": [mean], "growing": [mean, 0.0], "power": [max(mean, float(errors.min())), 1.0]}[law]
    fitted, covariance = curve_fit(of, sizes, values, p0=guess, sigma=errors, absolute_sigma=True, maxfev=20_000)
    chi_squared = float(np.sum(((values - of(sizes, *fitted)) / errors) ** 2))
    freedom = len(sizes) - len(fitted)
    misfit = np.sqrt(max(1.0, chi_squared / max(freedom, 1)))
    return Fit(
        law=law,
        formula=formula,
        parameters=tuple(float(value) for value in fitted),
        errors=tuple(float(error) for error in misfit * np.sqrt(np.diag(covariance))),
        chi_squared=chi_squared,
        degrees_of_freedom=freedom,
        aic=chi_squared + 2 * len(fitted),
    )
