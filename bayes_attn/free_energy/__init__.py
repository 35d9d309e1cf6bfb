"""Free energies from the samples of a run, with errors: normalisations, profiles of the order parameter, phases."""

from bayes_attn.free_energy.coexistence import (
    Coexistence,
    Rise,
    coexistence,
    deepest,
    field_at_coexistence,
    phase_normalisations,
    rise,
)
from bayes_attn.free_energy.pool import Pool, pool
from bayes_attn.free_energy.profile import Profile
from bayes_attn.free_energy.ratios import LogRatios, phase_weight, stepping_stone, thermodynamic_integration
from bayes_attn.free_energy.resampling import Smear, crossing_error, smear

__all__ = [
    "Coexistence",
    "LogRatios",
    "Pool",
    "Profile",
    "Rise",
    "Smear",
    "coexistence",
    "crossing_error",
    "deepest",
    "field_at_coexistence",
    "phase_normalisations",
    "phase_weight",
    "pool",
    "rise",
    "smear",
    "stepping_stone",
    "thermodynamic_integration",
]
