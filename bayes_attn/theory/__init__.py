"""The analytic side: where the transition lies, the curve of order parameters, and the density of the copy mass.

It reads a posterior's fields, never its densities, and shares no code with `bayes_attn.sampling`.
"""

from bayes_attn.posterior import CopyPosterior
from bayes_attn.priors import RelativeBias
from bayes_attn.theory import linear, shared_row, softmax
from bayes_attn.theory.action import Action, Density, specification
from bayes_attn.theory.plane import EndPoint, coexistence_line, end_point, way_to_end
from bayes_attn.theory.profile import AnalyticProfile, profile
from bayes_attn.theory.susceptibility import susceptibility
from bayes_attn.theory.transition import Transition, transition, transitions
from bayes_attn.theory.zero_temperature import Landscape, landscape

__all__ = [
    "Action",
    "AnalyticProfile",
    "Density",
    "EndPoint",
    "Landscape",
    "Transition",
    "coexistence_line",
    "densities",
    "end_point",
    "landscape",
    "linear",
    "profile",
    "softmax",
    "specification",
    "susceptibility",
    "transition",
    "transitions",
    "way_to_end",
]


def densities(posterior: CopyPosterior, loads: list[float]) -> list[Density | None]:
    """p(m) at each load: exact for linear attention (signed m) and for a softmax row shared by all (RelativeBias), else
    by saddle points with fluctuations.

    None where the saddle points do not span the density.

    Raises
    ------
    InvalidInput: there is no theory for this attention kind, prior or task.
    """
    if posterior.attention == "linear":
        return [linear.order_parameter_law(posterior, load).density for load in loads]
    if isinstance(posterior.prior, RelativeBias):
        return [shared_row.density(posterior, load) for load in loads]
    return softmax.densities(posterior, loads)
