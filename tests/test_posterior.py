"""The two posteriors against the dense Gaussian evidence, each other and their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_attn import CopyTask, DataSet, InvalidInput, Population, Posterior
from bayes_attn.attention import ATTENTION_KINDS
from bayes_attn.posterior import DataSetAtLoad

CASES = [(name, causal) for name in ATTENTION_KINDS for causal in (False, True)]
MODEL = {"logit_scale": 0.8, "value_scale": 1.3, "noise": 0.6}


def dense_evidence(posterior: DataSet, tokens: np.ndarray, params: jax.Array) -> float:
    """log p(targets | A) from the dense covariance of all outputs: no Woodbury identity, no count tensor."""
    task = posterior.task
    weights = np.asarray(posterior.weights(params))[task.queries]
    one_hot = np.eye(task.vocab)[tokens]
    features = np.concatenate([weights @ x for x in one_hot])
    targets = np.concatenate([x[task.sources] for x in one_hot])
    covariance = posterior.noise * np.eye(len(features))
    covariance += posterior.value_scale**2 / task.vocab * features @ features.T
    normal = stats.multivariate_normal(np.zeros(len(features)), covariance)
    return float(sum(normal.logpdf(column) for column in targets.T))


@pytest.mark.parametrize(("attention", "causal"), CASES)
def test_data_set_equals_the_dense_evidence(attention: str, causal: bool, key: jax.Array) -> None:
    task = CopyTask(5, 3, causal=causal)
    tokens = np.asarray(task.draw_tokens(key, 7))
    posterior = DataSet(tokens, task, attention, **MODEL, prefixes=[3, 7])
    for prefix in (3, 7):
        for draw in jax.random.split(key, 3):
            params = posterior.sample_copy(draw) if prefix == 3 else posterior.sample_prior(draw)
            value = float(posterior.log_likelihood(params, jnp.asarray(posterior.load(prefix))))
            assert value == pytest.approx(dense_evidence(posterior, tokens[:prefix], params), rel=1e-10)


@pytest.mark.parametrize("frequencies", [None, (0.6, 0.3, 0.1)])
@pytest.mark.parametrize(("attention", "causal"), CASES)
def test_population_equals_the_data_set_with_expected_counts(
    attention: str, causal: bool, frequencies: tuple[float, ...] | None, key: jax.Array
) -> None:
    task = CopyTask(5, 3, causal, frequencies)
    population = Population(task, attention, **MODEL)
    data_set = DataSet(np.zeros((1, 5), int), task, attention, **MODEL)
    same = np.eye(5)[:, None, :, None]
    p = task.token_frequencies
    expected = same * np.diag(p)[None, :, None, :] + (1 - same) * np.outer(p, p)[None, :, None, :]
    amount = 11.5
    load = jnp.asarray(population.load(amount))

    def by_counts(params: jax.Array) -> float:
        counts = jnp.asarray(amount * expected.transpose(1, 3, 0, 2).reshape(9, 25))
        return float(DataSetAtLoad(data_set, counts, jnp.asarray(amount)).log_likelihood(params, load))

    keys = jax.random.split(key, 4)
    params = [population.sample_prior(keys[0]), *(population.sample_copy(k) for k in keys[1:])]
    offsets = [by_counts(p) - float(population.log_likelihood(p, load)) for p in params]
    np.testing.assert_allclose(offsets, offsets[0], rtol=1e-12)


@pytest.mark.parametrize("attention", ATTENTION_KINDS)
def test_many_sequences_with_much_noise_approach_the_population(attention: str, key: jax.Array) -> None:
    """At a fixed load the data set's log-likelihood differences converge to the population's like 1/sqrt(P)."""
    task = CopyTask(6, 4)
    gaps = []
    for amount in (100, 10_000):
        noise = amount * task.length / task.vocab**2 / 2.0
        population = Population(task, attention, noise=noise)
        data_set = DataSet(np.asarray(task.draw_tokens(key, amount)), task, attention, noise=noise)
        a, b = population.sample_prior(key), population.sample_copy(key)
        load = jnp.asarray(2.0)
        difference = [float(p.log_likelihood(b, load) - p.log_likelihood(a, load)) for p in (population, data_set)]
        gaps.append(abs(difference[1] - difference[0]) / abs(difference[0]))
    assert gaps[1] < 0.03
    assert gaps[1] < gaps[0] / 2


def test_no_data_is_the_prior(softmax_16: Population, key: jax.Array) -> None:
    assert float(softmax_16.log_likelihood(softmax_16.sample_prior(key), jnp.asarray(0.0))) == 0.0
    data_set = DataSet(np.zeros((2, 16), int), CopyTask(16, 16))
    for draw in jax.random.split(key, 2):
        assert float(data_set.log_likelihood(data_set.sample_copy(draw), jnp.asarray(0.0))) == 0.0


def test_statistics_are_linear_between_prefixes(key: jax.Array) -> None:
    """Between two prefixes the count tensor is their linear interpolation, and the amount is continuous."""
    task = CopyTask(4, 3)
    tokens = np.asarray(task.draw_tokens(key, 6))
    coarse = DataSet(tokens, task, prefixes=[2, 6])
    params = coarse.sample_prior(key)
    mixed = 0.25 * coarse.counts[1] + 0.75 * coarse.counts[2]
    load = jnp.asarray(coarse.load(5.0))
    # 2 + 0.75 * (6 - 2) = 5 sequences.
    expected = DataSetAtLoad(coarse, mixed, jnp.asarray(5.0)).log_likelihood(params, load)
    value = coarse.log_likelihood(params, load)
    assert float(value) == pytest.approx(float(expected), rel=1e-12)


def test_load_and_data_are_inverse_and_follow_the_definition() -> None:
    posterior = Population(CopyTask(16, 8), value_scale=0.5, noise=2.0)
    assert posterior.load(40) == pytest.approx(40 * 16 * 0.25 / (2.0 * 64))
    assert posterior.num_sequences(posterior.load(40)) == pytest.approx(40)


def test_linear_attention_is_symmetric_and_softmax_is_not(
    softmax_16: Population, linear_16: Population, key: jax.Array
) -> None:
    load = jnp.asarray(2.0)
    for posterior, symmetric in ((linear_16, True), (softmax_16, False)):
        params = posterior.sample_copy(key)
        gap = float(posterior.log_likelihood(params, load) - posterior.log_likelihood(-params, load))
        assert (abs(gap) < 1e-9) == symmetric


@pytest.mark.parametrize(("attention", "causal"), CASES)
def test_contract_and_gradients(attention: str, causal: bool, key: jax.Array) -> None:
    task = CopyTask(5, 3, causal=causal)
    tokens = np.asarray(task.draw_tokens(key, 6))
    for posterior in (Population(task, attention), DataSet(tokens, task, attention)):
        assert isinstance(posterior, Posterior)
        assert posterior.order_parameters(posterior.sample_prior(key))._fields[0] == "copy_mass"
        params, direction = posterior.sample_prior(key), jax.random.normal(key, (5, 5))
        load = jnp.asarray(0.8 * posterior.load(6))

        def along(x: float, posterior=posterior, params=params, direction=direction, load=load) -> jax.Array:
            return posterior.log_likelihood(params + x * direction, load)

        step = 1e-5
        numeric = float(along(step) - along(-step)) / (2 * step)
        assert float(jax.grad(along)(0.0)) == pytest.approx(numeric, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attention": "cosine"}, "`attention` must be one of softmax, linear, got 'cosine'"),
        ({"logit_scale": 0.0}, "`logit_scale` must be a positive finite number, got 0.0"),
        ({"value_scale": -1.0}, "`value_scale` must be a positive finite number, got -1.0"),
        ({"noise": float("nan")}, "`noise` must be a positive finite number, got nan"),
    ],
)
def test_bad_models_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Population(CopyTask(4, 3), **arguments)


@pytest.mark.parametrize("prefixes", [[0, 2], [2, 2], [3, 1], [1, 9], []])
def test_bad_prefixes_are_refused(prefixes: list[int]) -> None:
    with pytest.raises(InvalidInput, match="`prefixes` must be increasing positive integers up to the 4 sequences"):
        DataSet(np.zeros((4, 5), int), CopyTask(5, 3), prefixes=np.array(prefixes, int))


def test_a_load_beyond_the_data_is_refused() -> None:
    posterior = DataSet(np.zeros((4, 5), int), CopyTask(5, 3))
    posterior.check_load(posterior.load(4))
    with pytest.raises(InvalidInput, match="`load` must ask for at most the 4 sequences"):
        posterior.check_load(posterior.load(4.5))


def test_single_precision_is_refused_for_data_sets() -> None:
    with jax.enable_x64(False), pytest.raises(InvalidInput, match="`jax_enable_x64` must be True"):
        DataSet(np.zeros((4, 5), int), CopyTask(5, 3))
