"""The content of results.json."""

import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from bayes_attn.diagnostics import PhaseRow
from bayes_attn.evidence import Evidence
from bayes_attn.posterior import Population
from bayes_attn.workflow.experiment import CHAINS, TransitionRun
from bayes_attn.workflow.settings import theory_json
from bayes_attn.workflow.store import finite


def results_json(run: TransitionRun) -> dict[str, Any]:
    """The content of results.json."""
    participation = run.shown.order_parameters[1].mean(axis=(0, 1))
    weight, ratio = run.copy_weight, run.samples.round_trip_rate_ratio
    rows = [
        {
            "load": float(run.loads[i]),
            "data": float(run.data[i]),
            "copy_mass": estimate.mean,
            "copy_mass_error": estimate.error,
            "participation": float(participation[i]),
            "theory_copy_mass": None if (density := run.densities[i]) is None else density.mean(),
            "ess": estimate.ess,
            "rhat": estimate.rhat,
        }
        for i, estimate in enumerate(run.verdict.evidence.estimates)
    ]
    packages = ["bayes-attn", "jax", "jaxlib", "blackjax", "numpyro", "arviz", "numpy", "scipy"]
    frequencies = run.posterior.task.token_frequencies if run.posterior.task.frequencies else None
    return theory_json(run.settings, run.transition) | {
        "posterior": "population" if isinstance(run.posterior, Population) else "dataset",
        "tokens": None if run.settings.tokens is None else str(run.settings.tokens),
        "frequencies": None if frequencies is None else frequencies.tolist(),
        "rows": rows,
        "verdict": run.verdict.order,
        "finding": run.verdict.finding,
        "sentences": run.sentences(),
        "reasons": list(run.verdict.reasons),
        "missing": list(run.verdict.missing),
        "criteria": [
            {"name": one.name, "value": one.value, "error": finite(one.error), "passed": one.passed, "rule": one.rule}
            for one in run.verdict.criteria
        ],
        **_phases_json(run.verdict.evidence),
        "barrier_theory": run.profile and run.profile.barrier,
        "latent_heat_theory": _slope(run),
        "phase_free_energies": _branches_json(run),
        "bimodality": _humps_json(run.verdict.evidence),
        "convergence": _convergence_json(run.verdict.evidence),
        "energy_missing_information": finite(run.verdict.evidence.bfmi),
        "sizes": [
            {"length": int(one.size)} | _phases_json(one) for one in (*run.verdict.companions, run.verdict.evidence)
        ],
        "barrier_growth": None if run.verdict.barriers is None else [asdict(fit) for fit in run.verdict.barriers.fits],
        "times_longer": run.verdict.longer,
        "chains": CHAINS,
        "path": run.path,
        "scans": run.samples.schedule.scans,
        "rungs": run.samples.rungs,
        "round_trips": run.samples.round_trips(),
        "phase_round_trips": run.verdict.evidence.phase_round_trips,
        "communication_barrier": run.samples.communication_barrier,
        "round_trip_rate_ratio": ratio if np.isfinite(ratio) else None,
        "copy_weight": None if weight is None else weight.mean,
        "copy_weight_error": None if weight is None else weight.error,
        "swap_rates": run.samples.swap_rate.tolist(),
        "advice": [advice.value for advice in run.samples.advice()],
        "divergences": int(run.samples.divergent.sum()),
        "seed": run.settings.seed,
        "small": run.settings.small,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "seconds": run.seconds,
    }


def _phases_json(evidence: Evidence) -> dict[str, float | None]:
    """What the samples of one size say about two phases; None where they do not."""
    phases = evidence.coexistence
    known = {
        "critical_load_equal_weight": phases and phases.equal_weight,
        "critical_load_equal_weight_error": phases and phases.equal_weight_error,
        "critical_load_equal_height": phases and phases.equal_height,
        "critical_load_equal_height_error": phases and phases.equal_height_error,
        "barrier_sampled": evidence.barrier if evidence.profile is not None else None,
        "barrier_sampled_error": evidence.barrier_error,
        "latent_heat": phases and phases.latent_heat,
        "latent_heat_error": phases and phases.latent_heat_error,
        "copy_mass_jump": phases and phases.jump,
        "copy_mass_jump_error": phases and phases.jump_error,
        "coexistence_slope": phases and phases.slope,
        "coexistence_slope_error": phases and phases.slope_error,
        "binder_minimum": evidence.rise and evidence.rise.binder_minimum,
        "binder_minimum_error": evidence.rise and evidence.rise.binder_minimum_error,
    }
    return {name: finite(value) for name, value in known.items()}


def _slope(run: TransitionRun) -> float | None:
    """The theory's latent heat: the slope of the difference of both phases' free energies where it vanishes."""
    branches, difference = run.verdict.evidence.phase_free_energies, run.phase_difference
    if branches is None or difference is None or not difference[0] > 0 > difference[-1]:
        return None
    nearest = np.argsort(np.abs(difference))[:3]
    return float(np.polyfit(branches.loads[nearest], difference[nearest], 1)[0])


def _branches_json(run: TransitionRun) -> dict[str, Any] | None:
    branches, difference = run.verdict.evidence.phase_free_energies, run.phase_difference
    if branches is None:
        return None
    found = {name: np.asarray(value).tolist() for name, value in asdict(branches).items()}
    return found | {"difference_theory": None if difference is None else difference.tolist()}


def _humps_json(evidence: Evidence) -> dict[str, Any] | None:
    """The secondary measures at the row next to the transition."""
    found = evidence.humps
    if found is None:
        return None
    mixture = found.mixture
    return {
        "load": evidence.middle,
        "dip": found.dip.dip,
        "dip_p_value": found.dip.p_value,
        "bic_difference": mixture.bic_difference,
        "ashmans_d": found.separation,
        "means": mixture.means.tolist(),
        "standard_deviations": mixture.standard_deviations.tolist(),
        "weights": mixture.weights.tolist(),
    }


def _convergence_json(evidence: Evidence) -> list[dict[str, Any]]:
    """Per phase and scalar, without those that are constant by construction (row sums of softmax attention)."""

    def varies(row: PhaseRow) -> bool:
        return row.estimate is None or row.estimate.error > 0

    return [
        {"phase": row.phase, "scalar": row.scalar, "scans": row.scans}
        | {
            name: None if row.estimate is None else getattr(row.estimate, name)
            for name in ("mean", "error", "ess", "rhat")
        }
        for row in evidence.convergence
        if varies(row)
    ]
