"""Training: what gradient descent does on the density that the engine samples."""

from bayes_attn.training.adam import STARTS, Record, Regimen, Training, largest_step, train
from bayes_attn.training.descent import descend

__all__ = ["STARTS", "Record", "Regimen", "Training", "descend", "largest_step", "train"]
