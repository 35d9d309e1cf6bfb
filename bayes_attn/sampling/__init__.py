"""Sampling any posterior that meets the contract, at every rung of a path, by replica exchange."""

from bayes_attn.sampling.controls import Controls, load_ladder, log_density
from bayes_attn.sampling.run import Samples, Schedule, sample

__all__ = ["Controls", "Samples", "Schedule", "load_ladder", "log_density", "sample"]
