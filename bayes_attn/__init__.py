"""Phase transitions in attention, Bayesian: the posterior, its theory, and replica exchange, side by side.

A tour::

    import bayes_attn as ba

    task = ba.CopyTask(length=16, vocab=16)
    posterior = ba.Population(task, attention="softmax")
    transition = ba.theory.transition(posterior)              # where, and of which order
    path = ba.load_ladder([0.0, 1.3, 2.6, 3.9])               # data amounts, as dimensionless loads
    start = ba.Starts((posterior.sample_prior, posterior.sample_copy), chains=4)  # cold and hot
    samples = ba.sample(posterior, path, start, ba.Schedule(warmup=500, draws=100, thin=10), seed=0)
    print(transition.critical_load, samples.order_parameters.copy_mass.mean(axis=(0, 1)))

Names are loaded when first used, so that importing the package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayes_attn import theory
    from bayes_attn.errors import InvalidInput
    from bayes_attn.evidence import Evidence, measure
    from bayes_attn.order_parameters import OrderParameters
    from bayes_attn.planner import Plan, plan, plans
    from bayes_attn.posterior import DataSet, Population, Posterior
    from bayes_attn.priors import HeadProduct, IidLogits, RelativeBias
    from bayes_attn.regions import phase_diagram
    from bayes_attn.sampling import Controls, Path, Samples, Schedule, Starts, load_ladder, sample
    from bayes_attn.tasks import CopyTask
    from bayes_attn.verdict import Verdict, judge

_HOMES = {
    "InvalidInput": "errors",
    "OrderParameters": "order_parameters",
    "CopyTask": "tasks",
    "HeadProduct": "priors",
    "IidLogits": "priors",
    "RelativeBias": "priors",
    "Posterior": "posterior",
    "Population": "posterior",
    "DataSet": "posterior",
    "Controls": "sampling",
    "Path": "sampling",
    "Starts": "sampling",
    "Samples": "sampling",
    "Schedule": "sampling",
    "load_ladder": "sampling",
    "sample": "sampling",
    "Evidence": "evidence",
    "measure": "evidence",
    "Verdict": "verdict",
    "Plan": "planner",
    "phase_diagram": "regions",
    "plan": "planner",
    "plans": "planner",
    "judge": "verdict",
}

__all__ = [
    "Controls",
    "CopyTask",
    "DataSet",
    "Evidence",
    "HeadProduct",
    "IidLogits",
    "InvalidInput",
    "OrderParameters",
    "Path",
    "Plan",
    "Population",
    "Posterior",
    "RelativeBias",
    "Samples",
    "Schedule",
    "Starts",
    "Verdict",
    "judge",
    "load_ladder",
    "measure",
    "phase_diagram",
    "plan",
    "plans",
    "sample",
    "theory",
]


def __getattr__(name: str) -> object:
    if name == "theory":
        return importlib.import_module("bayes_attn.theory")
    if name in _HOMES:
        return getattr(importlib.import_module(f"bayes_attn.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'bayes_attn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
