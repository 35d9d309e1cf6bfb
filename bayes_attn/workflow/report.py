"""The report: one self-contained HTML file, with the figures as PNG beside it."""

import base64
import shlex
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from matplotlib.figure import Figure

from bayes_attn.workflow.experiment import TransitionRun
from bayes_attn.workflow.figures import CAPTIONS, FIGURES
from bayes_attn.workflow.settings import TrainSettings, TransitionSettings

PATHS = {
    "load": "along the data amount",
    "detour": "along the data amount, at α* round the critical end point and back",
}
HEADINGS = {
    "copy_mass": "Copy mass against data",
    "histograms": "Below, at and above the transition",
    "free_energy": "Free energy of the copy mass",
    "scaling": "Growth with the size",
    "attention": "Mean attention matrices",
    "diagnostics": "Convergence",
    "ranks": "Ranks of the chains",
}


def command(settings: TransitionSettings | TrainSettings, verb: str) -> str:
    """The command line that runs these settings again; options at their default are left out, but for the seed."""
    words = ["uv", "run", "bayes-attn", verb]
    for name, field in type(settings).__dataclass_fields__.items():
        value = getattr(settings, name)
        if (value == field.default and name != "seed") or name in ("out", "json"):
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    return shlex.join(words)


def template(name: str) -> Template:
    """A page's template in this package."""
    loader = PackageLoader("bayes_attn.workflow", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(name)


def embedded(
    figures: dict[str, Figure | None], headings: dict[str, str], captions: dict[str, str], folder: Path
) -> list[dict[str, str]]:
    """Write each figure as NAME.png into `folder`, close it, and give it as a page needs it; None is left out."""
    shown = []
    for name, figure in figures.items():
        if figure is None:
            continue
        figure.savefig(folder / f"{name}.png")
        plt.close(figure)
        image = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
        shown.append({"heading": headings[name], "caption": captions[name], "image": image})
    return shown


def write_report(run: TransitionRun, results: dict[str, Any], folder: Path) -> None:
    """Write report.html and one PNG per figure into `folder`; `results` is the content of results.json."""
    page = template("report.html.jinja").render(
        title=f"Transition of {results['attention']} attention, L = {results['length']}, V = {results['vocab']}",
        verdict=results["verdict"],
        criteria=[_criterion(one) for one in results["criteria"]],
        sentences=results["sentences"],
        figures=embedded({name: draw(run) for name, draw in FIGURES.items()}, HEADINGS, CAPTIONS, folder),
        symbol=run.symbol,
        own_tokens=run.own_tokens,
        rows=_rows(results),
        humps=_humps(results),
        convergence=_convergence(results),
        middle=f"{run.verdict.evidence.middle:.4f}",
        theory=_theory_table(results),
        sampling=_sampling_table(run, results),
        command=command(run.settings, "transition"),
        versions=", ".join(f"{name} {number}" for name, number in results["versions"].items()),
    )
    (folder / "report.html").write_text(page, encoding="utf-8")


MARKS = {True: "yes", False: "no", None: "—"}


def _criterion(one: dict[str, Any]) -> dict[str, str]:
    value = "not measured" if one["value"] is None else f"{one['value']:.4g}"
    error = "" if one["error"] is None else f" ± {one['error']:.2g}"
    return {"name": one["name"], "value": value + error, "rule": one["rule"], "passed": MARKS[one["passed"]]}


def _rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    return [row | {"theory": _fixed(row["theory_copy_mass"])} for row in results["rows"]]


def _humps(results: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(measure, value, what it takes for granted)."""
    found = results["bimodality"]
    if found is None:
        return []
    dip = f"{found['dip']:.4f}, p = {found['dip_p_value']:.3f}"
    return [
        ("dip of each chain, against one hump", dip, "one hump with the memory of the samples; blind to a small hump"),
        (
            "two Gaussians over one, BIC",
            f"{found['bic_difference']:.0f}",
            "phases are Gaussian: a single skewed peak passes, too",
        ),
        ("Ashman's D of the two Gaussians", f"{found['ashmans_d']:.2f}", "that there are two; apart from 2 on"),
    ]


SCALARS = {
    "copy_mass": "copy mass",
    "participation": "participation",
    "uniform_overlap": "uniform overlap",
    "row_power": "row power",
    "log_density": "log-density",
}


def _convergence(results: dict[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for one in results["convergence"]:
        figures = ("", "", "", "")
        if one["mean"] is not None:
            figures = (f"{one['mean']:.5g}", f"{one['error']:.2g}", f"{one['ess']:.0f}", f"{one['rhat']:.4f}")
        rows.append((one["phase"], SCALARS[one["scalar"]], f"{one['scans']:,}", *figures))
    return rows


def _fixed(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _share(results: dict[str, Any]) -> str:
    weight = results["copy_weight"]
    return "does not apply" if weight is None else f"{weight:.3f} ± {results['copy_weight_error']:.3f}"


def _with_error(results: dict[str, Any], name: str, unit: str = "") -> str:
    value, error = results[name], results[f"{name}_error"]
    if value is None:
        return "does not apply"
    return f"{value:.5g}" + ("" if error is None else f" ± {error:.2g}") + unit


def _number(value: float | None, digits: int = 5, unit: str = "") -> str:
    return "does not apply" if value is None else f"{value:.{digits}g}{unit}"


def _theory_table(results: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("order", results["order"]),
        ("critical load α*", _number(results["critical_load"])),
        ("numerical error of α*", _number(results["critical_load_error"], 1)),
        ("critical data P*", _number(results["critical_data"], 5, " sequences")),
        ("copy phase appears at (spinodal)", _number(results["spinodal_low"])),
        ("disordered phase ends at (spinodal)", _number(results["spinodal_high"])),
        ("barrier at α*, saddle points alone", _number(results["barrier"], 4, " kT")),
        ("numerical error of the barrier", _number(results["barrier_error"], 1, " kT")),
        ("copy mass, disordered phase at α*", _number(results["copy_mass_disordered"], 4)),
        ("copy mass, copy phase at α*", _number(results["copy_mass_copy"], 4)),
    ]


def _sampling_table(run: TransitionRun, results: dict[str, Any]) -> list[tuple[str, str]]:
    evidence = run.verdict.evidence
    return [
        ("posterior", results["posterior"]),
        ("chains (odd ones start from the copy pattern)", str(results["chains"])),
        ("path", PATHS[results["path"]]),
        ("rungs", str(results["rungs"])),
        ("scans per chain, after warm-up", f"{results['scans']:,}"),
        ("largest R-hat", f"{max(row['rhat'] for row in results['rows']):.4f}"),
        ("smallest effective sample size", f"{min(row['ess'] for row in results['rows']):.0f}"),
        ("round trips along the path", f"{results['round_trips']:,}"),
        ("seen over predicted round trips", _number(results["round_trip_rate_ratio"], 2)),
        ("communication barrier Λ", f"{results['communication_barrier']:.2f}"),
        ("round trips between the phases", f"{results['phase_round_trips']:,}"),
        ("share of the copy phase at α*", _share(results)),
        ("smallest swap rate", f"{min(results['swap_rates']):.2f}"),
        ("divergent transitions", str(results["divergences"])),
        ("least BFMI (energy; above 0.3)", _number(results["energy_missing_information"], 2)),
        ("cold against hot starts, largest difference", f"{evidence.cold_hot_difference:.1f} standard errors"),
        ("barrier, ln(peak / valley)", _with_error(results, "barrier_sampled", " kT")),
        ("the same of the analytic density", _number(results["barrier_theory"], 4, " kT")),
        ("load of equal weight", _with_error(results, "critical_load_equal_weight")),
        ("load of equal height", _with_error(results, "critical_load_equal_height")),
        ("latent heat, jump of dF/dα", _with_error(results, "latent_heat", " kT")),
        ("latent heat by the theory", _number(results["latent_heat_theory"], 4, " kT")),
        ("slope dh/dα of the line of coexistence", _with_error(results, "coexistence_slope")),
        ("advice", "; ".join(results["advice"]) or "none"),
        ("seed", str(results["seed"])),
        ("time", f"{results['seconds']:.0f} s"),
    ]
