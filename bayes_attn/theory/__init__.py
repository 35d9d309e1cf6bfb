"""The analytic side: where the transition lies, the curve of order parameters, and the density of the copy mass.

It reads a posterior's fields, never its densities, and shares no code with `bayes_attn.sampling`.
"""

from bayes_attn.posterior import CopyPosterior
from bayes_attn.theory import linear, softmax
from bayes_attn.theory.action import Action, Density, specification
from bayes_attn.theory.plane import EndPoint, coexistence_line, end_point
from bayes_attn.theory.transition import Transition, transition, transitions
from bayes_attn.theory.zero_temperature import Landscape, landscape

__all__ = [
    "Action",
    "Density",
    "EndPoint",
    "Landscape",
    "Transition",
    "coexistence_line",
    "densities",
    "end_point",
    "landscape",
    "linear",
    "softmax",
    "specification",
    "transition",
    "transitions",
]


def densities(posterior: CopyPosterior, loads: list[float]) -> list[Density | None]:
    """p(m) at each load: exact for linear attention (signed m), saddle point with fluctuations for softmax.

    None where the saddle points do not span the density.

    Raises
    ------
    InvalidInput: there is no theory for this attention kind, prior or task.
    """
    if posterior.attention == "linear":
        return [linear.order_parameter_law(posterior, load).density for load in loads]
    return softmax.densities(posterior, loads)
