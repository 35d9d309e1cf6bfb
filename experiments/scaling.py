"""Question: how does the data amount of the transition grow with the length, and where does P* ~ L ln^2 L hold?

From the theory alone, P*, both spinodals and the barrier for L = 16 ... 16,384 at a fixed vocabulary, at V = 2 sqrt(L),
and at V = L; fits of ln^2 L, L, L ln L and L ln^2 L (each with a free factor), of L^a, and of (ln L + c)^2 with and
without a factor L, compared by AIC; local exponents d ln P / d ln L.

Noise conventions (theory, section 2). With noise kappa per output entry, P* is as computed. With the loss averaged over
positions the same formulae hold at kappa = L kappa_0, so that P* is L times larger: a law in one convention is L times
that law in the other. Both are fitted.

What came out (sigma_s = sigma_w = 1, fitted from L = 128 on; the misfit is the root mean square of the logarithms):

* V = 8, attention-limited: P* = 0.287 (ln L + 5.7)^2 per entry to 0.4 %, so L (ln L + c)^2 per sequence. That is the
  published L ln^2 L with a shift that matters at every length here: without it the law is off by 20 %, and the local
  exponent is 0.13 at L = 10^4 where that of ln^2 L is 0.21. Why: a row copies once its share of the data,
  P m^2 / (2 kappa q), pays for a logit of about ln L + c under the prior.
* V = 2 sqrt(L), where both cost alike: 0.80 (ln L + 2.9)^2 to 0.3 %.
* V = L, value-limited: P* tends to L per entry and L^2 per sequence (local exponent 0.95 and rising at L = 10^4), for
  V^2 value weights must be paid for, and P L samples pay for them. L ln^2 L holds in neither convention.
* The copy phase appears below P* under the same laws. The disordered phase ends far above: at L = 16,384 at 4 P* for
  V = 8, at 45 P* for V = 2 sqrt(L) (as L^0.81), at 36 P* for V = L (as L^1.42).
* The barrier grows about as L (ln L + c)^2 in all three, a little faster than L.

    uv run python experiments/scaling.py runs/scaling
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "bayes_attn"))

import matplotlib.pyplot as plt
import numpy as np
import tyro
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from bayes_attn import CopyTask, Population, theory
from bayes_attn.workflow.figures import BLUE, GREEN, GREY, ORANGE, RED, save
from bayes_attn.workflow.store import choose_folder, write_json, written_whole

FAMILIES = {
    "V = 8": lambda _length: 8,
    "V = 2 √L": lambda length: round(2 * length**0.5),
    "V = L": lambda length: length,
}
LAWS = {
    "ln²L": lambda length: np.log(length) ** 2,
    "L": lambda length: length,
    "L ln L": lambda length: length * np.log(length),
    "L ln²L": lambda length: length * np.log(length) ** 2,
}
QUANTITIES = ("critical_data", "spinodal_low_data", "spinodal_high_data", "barrier")
LABELS = {
    "critical_data": "transition P*",
    "spinodal_low_data": "copy phase appears",
    "spinodal_high_data": "disordered phase ends",
    "barrier": "barrier (kT)",
}
CONVENTIONS = {"per entry": 0, "per sequence": 1}
"""Powers of L that a convention of the noise adds to data amounts."""


@dataclass(frozen=True)
class Fit:
    """A law with a free factor, fitted to the logarithms by least squares."""

    law: str
    parameter: float | None
    """The exponent a of L^a, or the shift c of (ln L + c)^2."""
    factor: float
    misfit: float
    """Root mean square of ln(data / law)."""
    aic: float
    """n ln(misfit^2) + 2 k with k parameters, up to a constant: differences above 10 are decisive."""


def family(vocab: str, lengths: list[int]) -> dict[str, list[float | None]]:
    """The theory along one family; None where the transition is a crossover."""
    posteriors = [Population(CopyTask(length, max(2, FAMILIES[vocab](length)))) for length in lengths]
    rows: dict[str, list[float | None]] = {name: [] for name in QUANTITIES}
    for posterior in posteriors:
        found = theory.transition(posterior)
        rows["critical_data"].append(found.critical_data)
        for name in ("spinodal_low", "spinodal_high"):
            load = getattr(found, name)
            rows[f"{name}_data"].append(None if load is None else posterior.num_sequences(load))
        rows["barrier"].append(found.barrier)
    return rows


def fits(lengths: Float[np.ndarray, " size"], values: Float[np.ndarray, " size"]) -> list[Fit]:
    """Every law, best first."""
    target, count = np.log(values), len(values)

    def score(law: str, parameter: float | None, shape: np.ndarray, parameters: int) -> Fit:
        offset = float(np.mean(target - shape))
        misfit = float(np.sqrt(np.mean((target - shape - offset) ** 2)))
        return Fit(law, parameter, float(np.exp(offset)), misfit, count * np.log(misfit**2) + 2 * parameters)

    log_length = np.log(lengths)
    found = [score(law, None, np.log(of(lengths)), 2) for law, of in LAWS.items()]
    slope = float(np.polyfit(log_length, target, 1)[0])
    found.append(score("L^a", slope, slope * log_length, 3))
    for law, power in (("(ln L + c)²", 0.0), ("L (ln L + c)²", 1.0)):

        def shape(shift: float, power: float = power) -> np.ndarray:
            return power * log_length + 2 * np.log(log_length + shift)

        lowest = 0.05 - float(log_length[0])
        best: Any = minimize_scalar(
            lambda c, shape=shape: float(np.var(target - shape(c))), bounds=(lowest, 60), method="bounded"
        )
        found.append(score(law, float(best.x), shape(float(best.x)), 3))
    return sorted(found, key=lambda fit: fit.aic)


def study(lengths: list[int]) -> dict[str, Any]:
    """Everything: per family its rows, local exponents, and fits in both conventions over the upper half of sizes."""
    content: dict[str, Any] = {"lengths": lengths}
    for vocab, size in FAMILIES.items():
        rows = family(vocab, lengths)
        entry: dict[str, Any] = {
            "rows": rows,
            "vocab": [size(length) for length in lengths],
            "fits": {},
            "exponents": {},
        }
        for name, listed in rows.items():
            known = np.array([value is not None for value in listed])
            sizes, values = np.array(lengths, dtype=float)[known], np.array([v for v in listed if v is not None])
            if len(values) < 4:
                continue
            local = np.diff(np.log(values)) / np.diff(np.log(sizes))
            entry["exponents"][name] = {"length": np.sqrt(sizes[1:] * sizes[:-1]).tolist(), "exponent": local.tolist()}
            large = slice(len(sizes) // 3, None)
            powers = CONVENTIONS if name != "barrier" else {"either": 0}
            entry["fits"][name] = {
                convention: [vars(fit) for fit in fits(sizes[large], (values * sizes**power)[large])]
                for convention, power in powers.items()
            }
        content[vocab] = entry
    return content


def draw(content: dict[str, Any]) -> Figure:
    """P* with its spinodals, local exponents, and barriers, one column per family."""
    families = [name for name in content if name in FAMILIES]
    figure, panels = plt.subplots(3, len(families), figsize=(4.0 * len(families), 9.0), sharex=True, squeeze=False)
    lengths = np.array(content["lengths"], dtype=float)
    colours = dict(zip(QUANTITIES, (RED, BLUE, GREEN, ORANGE), strict=True))
    for (top, middle, bottom), name in zip(panels.T, families, strict=True):
        rows = content[name]["rows"]
        for quantity in QUANTITIES[:3]:
            values = np.array(rows[quantity], dtype=float)
            top.loglog(lengths, values, "o-", ms=3, color=colours[quantity], label=LABELS[quantity])
        known = "(ln L + c)²" if name != "V = L" else "L"
        fit = next(one for one in content[name]["fits"]["critical_data"]["per entry"] if one["law"] == known)
        curve = fit["factor"] * (lengths if name == "V = L" else (np.log(lengths) + fit["parameter"]) ** 2)
        top.loglog(lengths, curve, "--", color=GREY, lw=1, label=f"∝ {known}")
        top.set_title(name)
        top.legend(fontsize=8)
        for quantity, entry in content[name]["exponents"].items():
            if quantity == "barrier":
                continue
            middle.semilogx(
                entry["length"], entry["exponent"], "o-", ms=3, color=colours[quantity], label=LABELS[quantity]
            )
        middle.semilogx(lengths, 2 / np.log(lengths), "--", color=GREY, lw=1, label="of ln²L: 2 / ln L")
        middle.axhline(1, color=GREY, lw=0.6, ls=":")
        middle.set_ylim(0, 1.6)
        middle.legend(fontsize=8)
        bottom.loglog(lengths, np.array(rows["barrier"], dtype=float), "o-", ms=3, color=ORANGE)
        bottom.set_xlabel("positions L")
    panels[0, 0].set_ylabel("data P / κ (sequences, noise per entry)")
    panels[1, 0].set_ylabel("local exponent d ln / d ln L")
    panels[2, 0].set_ylabel("barrier at P* (kT)")
    return figure


def statement(content: dict[str, Any]) -> list[str]:
    """The best law of P* and of the others, per family and convention."""
    lines = []
    for name in FAMILIES:
        for quantity, by_convention in content[name]["fits"].items():
            for convention, found in by_convention.items():
                best, second = found[0], found[1]
                power = "" if best["parameter"] is None else f" with {best['parameter']:.3g}"
                lines.append(
                    f"{name}, {LABELS[quantity]}, noise {convention}: best {best['factor']:.3g} {best['law']}{power} "
                    f"(misfit {best['misfit']:.1%}), then {second['law']} (misfit {second['misfit']:.1%}, "
                    f"AIC {second['aic'] - best['aic']:+.0f})"
                )
    return lines


def main(folder: tyro.conf.Positional[Path], largest: int = 16_384) -> None:
    """Write scaling.json, scaling.png and scaling.svg into a new folder, and print what the fits say."""
    folder = choose_folder(folder, "scaling", "scaling")
    lengths = [2**power for power in range(4, int(np.log2(largest)) + 1)]
    with written_whole(folder) as scratch:
        content = study(lengths)
        write_json(scratch / "scaling.json", content)
        save(draw(content), scratch, "scaling")
    print("\n".join(statement(content)))
    print(json.dumps({"folder": str(folder)}))


if __name__ == "__main__":
    tyro.cli(main)
