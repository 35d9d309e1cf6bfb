"""Adam's landscape: against descent over all parameters, and its minima counted on a grid.

The loads differ from those of theory.md, section 8, where the other keys' logits are held at 0 and linear attention at
a multiple of the shift: descent over all parameters finds lower minima.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bayes_attn import CopyTask, Population
from bayes_attn.joint import Joint, JointParameters
from bayes_attn.order_parameters import OrderParameters
from bayes_attn.theory import Landscape, landscape
from bayes_attn.training import descend
from bayes_attn.training.adam import objective

SIZE = 16


@pytest.fixture(scope="module", params=["softmax", "linear"])
def descended(request: pytest.FixtureRequest) -> tuple[Population, Landscape, dict[float, OrderParameters], np.ndarray]:
    """Adam on the averaged data's joint density, over all L^2 logits and V^2 values: just below and above each load.

    Order parameters at each load, of the start near 0 and of the copy pattern, and the energies reached at the middle.
    """
    posterior = Population(CopyTask(SIZE, SIZE), request.param)
    joint, found = Joint(posterior), landscape(posterior)
    at = [load for load in (found.spinodal_low, found.spinodal_high) if load] or [found.critical_load]
    loads = jnp.array([share * load for load in at for share in (0.985, 1.015)] + [found.critical_load])
    optimiser = optax.adam(optax.exponential_decay(0.02, 5_000, 0.3))
    key = jax.random.key(1)
    starts = [0.01 * joint.sample_prior(key).attention, posterior.sample_copy(key)]

    def end(load: jax.Array) -> list:
        ends = []
        for attention in starts:
            start = JointParameters(attention, joint.best_value(attention, load))
            loss = partial(objective, joint, load, True)
            ends.append(descend(loss, start, optimiser, 12_000, 12_000, lambda _: None)[0])
        return [(joint.order_parameters(last), objective(joint, load, True, last)) for last in ends]

    (cold, cold_energy), (hot, hot_energy) = jax.jit(jax.vmap(end))(loads)
    orders = {
        float(load): jax.tree.map(lambda *x, i=i: np.array([y[i] for y in x]), cold, hot)
        for i, load in enumerate(loads)
    }
    return posterior, found, orders, np.array([cold_energy[-1], hot_energy[-1]])


def test_descent_over_all_parameters_ends_where_the_landscape_says(descended: tuple) -> None:
    posterior, found, orders, energies = descended
    masses = [np.abs(order.copy_mass) for order in orders.values()]
    if posterior.attention == "linear":
        below, above, _ = masses
        assert max(below) < 1e-3
        assert min(above) > 0.03
        return
    # (start near 0, copy pattern): below and above the lower spinodal, below and above the upper one, at equal depth.
    assert [tuple(mass > 0.3) for mass in masses] == [
        (False, False),
        (False, True),
        (False, True),
        (True, True),
        (False, True),
    ]
    assert masses[-1] == pytest.approx([found.copy_mass_disordered, found.copy_mass_copy], abs=1e-4)
    assert energies[0] == pytest.approx(energies[1], rel=1e-5)


def minima(posterior: Population, load: float) -> np.ndarray:
    """Energies of the local minima along the copy pattern, from a plain grid."""
    length, vocab = posterior.task.length, posterior.task.vocab
    s = np.linspace(-2, 12, 200_001)
    weights = np.exp(s) + length - 1
    m, q = np.exp(s) / weights, (np.exp(2 * s) + length - 1) / weights**2
    energy = -0.5 * vocab * (vocab - 1) * (load / posterior.value_scale) ** 2 * m**2 / (1 + load * q)
    rows = np.stack([s - s / length, -s / length])  # the least shift of each row: it adds up to 0
    energy += length * (rows[0] ** 2 + (length - 1) * rows[1] ** 2) / (2 * posterior.logit_scale**2)
    inside = (energy[1:-1] < energy[:-2]) & (energy[1:-1] < energy[2:])
    return energy[1:-1][inside]


@pytest.mark.parametrize(
    ("length", "vocab", "logit_scale", "value_scale"), [(16, 16, 1, 1), (32, 8, 0.7, 1.4), (24, 12, 1.5, 0.6)]
)
def test_minima_appear_exchange_and_vanish(length: int, vocab: int, logit_scale: float, value_scale: float) -> None:
    posterior = Population(CopyTask(length, vocab), "softmax", float(logit_scale), float(value_scale))
    found = landscape(posterior)
    assert len(minima(posterior, 0.999 * found.spinodal_low)) == 1
    assert len(minima(posterior, 1.001 * found.spinodal_low)) == 2
    disordered, copy = minima(posterior, found.critical_load)
    assert disordered == pytest.approx(copy, rel=1e-4)
    assert len(minima(posterior, 0.999 * found.spinodal_high)) == 2
    assert len(minima(posterior, 1.001 * found.spinodal_high)) == 1


def test_small_sizes_have_one_minimum_at_every_load() -> None:
    posterior = Population(CopyTask(8, 8))
    assert landscape(posterior).critical_load is None
    assert all(len(minima(posterior, load)) == 1 for load in np.linspace(0.1, 6, 60))
