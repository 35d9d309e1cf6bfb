"""Sampling any posterior that meets the contract, at every rung of a path, by replica exchange."""

from bayes_attn.sampling.controls import (
    Controls,
    Path,
    coexistence_path,
    detour,
    field_path,
    four_legs,
    load_ladder,
    load_path,
    log_density,
    temperature_path,
)
from bayes_attn.sampling.pilot import Pilot, pilot
from bayes_attn.sampling.run import sample
from bayes_attn.sampling.samples import Advice, Round, Samples, Schedule
from bayes_attn.sampling.starts import Starts

__all__ = [
    "Advice",
    "Controls",
    "Path",
    "Pilot",
    "Round",
    "Samples",
    "Schedule",
    "Starts",
    "coexistence_path",
    "detour",
    "field_path",
    "four_legs",
    "load_ladder",
    "load_path",
    "log_density",
    "pilot",
    "sample",
    "temperature_path",
]
