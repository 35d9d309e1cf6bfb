"""Training: what gradient descent, and Langevin dynamics, do on the density that the engine samples."""

from bayes_attn.training.adam import STARTS, Record, Regimen, Training, check_amounts, largest_step, train
from bayes_attn.training.descent import descend
from bayes_attn.training.langevin import Langevin, batch_gradient, full_gradient, gaussian_variance, walk

__all__ = [
    "STARTS",
    "Langevin",
    "Record",
    "Regimen",
    "Training",
    "batch_gradient",
    "check_amounts",
    "descend",
    "full_gradient",
    "gaussian_variance",
    "largest_step",
    "train",
    "walk",
]
