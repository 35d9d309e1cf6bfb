import jax.numpy as jnp
import numpy as np
import pytest

from bayes_attn import CopyTask
from bayes_attn.order_parameters import measure


@pytest.mark.parametrize("causal", [False, True])
def test_definitions_by_loops(causal: bool, random_numbers: np.random.Generator) -> None:
    task = CopyTask(5, 3, causal=causal)
    weights = random_numbers.normal(size=(2, 5, 5))
    order = measure(jnp.asarray(weights), jnp.asarray(task.queries), jnp.asarray(task.sources))
    for batch in range(2):
        rows = range(1 if causal else 0, 5)
        matrix = weights[batch]
        n = len(rows)
        assert order.copy_mass[batch] == pytest.approx(sum(matrix[i, (i - 1) % 5] for i in rows) / n)
        assert order.participation[batch] == pytest.approx(sum(matrix[i, j] ** 2 for i in rows for j in range(5)) / n)
        assert order.uniform_overlap[batch] == pytest.approx(sum(matrix[i].sum() for i in rows) / n)
        assert order.row_power[batch] == pytest.approx(sum(matrix[i].sum() ** 2 for i in rows) / n)


def test_exact_cases() -> None:
    task = CopyTask(8, 3)
    queries, sources = jnp.asarray(task.queries), jnp.asarray(task.sources)
    perfect = jnp.zeros((8, 8)).at[queries, sources].set(1.0)
    assert [float(x) for x in measure(perfect, queries, sources)] == [1.0, 1.0, 1.0, 1.0]
    uniform = jnp.full((8, 8), 1 / 8)
    assert [float(x) for x in measure(uniform, queries, sources)] == [1 / 8, 1 / 8, 1.0, 1.0]
