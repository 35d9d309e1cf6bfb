"""The joint posterior: its marginal over the value matrix, sequence by sequence, and as the engine samples it."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_attn import CopyTask, DataSet, HeadProduct, Population, Schedule, load_ladder, sample
from bayes_attn.diagnostics import estimate
from bayes_attn.joint import Joint, JointParameters
from bayes_attn.posterior import CopyPosterior

LOAD = 1.4
KINDS = ["population", "zipf", "dataset", "causal", "linear", "head product"]


def posterior_of(kind: str) -> CopyPosterior:
    frequencies = (0.5, 0.25, 0.15, 0.1) if kind == "zipf" else None
    task = CopyTask(5, 4, causal=kind == "causal", frequencies=frequencies)
    prior = {"prior": partial(HeadProduct, head_dimension=2)} if kind == "head product" else {}
    model = {"logit_scale": 0.8, "value_scale": 1.3, "noise": 0.6} | prior
    if kind in ("population", "zipf", "linear"):
        return Population(task, "linear" if kind == "linear" else "softmax", **model)
    tokens = np.asarray(task.draw_tokens(jax.random.key(3), 9))
    return DataSet(tokens, task, **model)


@pytest.mark.parametrize("kind", KINDS)
def test_the_marginal_is_the_collapsed_posterior(kind: str, key: jax.Array) -> None:
    """log p(S, W) - log p(W | S) is log p(S) up to one constant; p(W | S) is a Gaussian written down here anew."""
    collapsed = posterior_of(kind)
    joint = Joint(collapsed)
    vocab, load = collapsed.task.vocab, jnp.asarray(LOAD)

    def excess(params: JointParameters) -> float:
        moments = collapsed.moments(params.attention, load)
        precision = np.asarray(moments.gram) / collapsed.noise + np.eye(vocab) * vocab / collapsed.value_scale**2
        covariance = np.linalg.inv(precision)
        mean = covariance @ np.asarray(moments.cross) / collapsed.noise
        columns = zip(mean.T, np.asarray(params.value).T, strict=True)
        conditional = sum(stats.multivariate_normal(m, covariance).logpdf(w) for m, w in columns)
        whole = joint.log_prior(params) + joint.log_likelihood(params, load)
        own = collapsed.log_prior(params.attention) + collapsed.log_likelihood(params.attention, load)
        return float(whole - own - conditional)

    first, *others = [excess(joint.sample_prior(one)) for one in jax.random.split(key, 4)]
    assert others == pytest.approx([first] * 3, abs=1e-9)


@pytest.mark.parametrize("kind", ["dataset", "causal"])
def test_sequences_add_up(kind: str, key: jax.Array) -> None:
    collapsed = posterior_of(kind)
    joint, params = Joint(collapsed), Joint(collapsed).sample_prior(key)
    tokens = collapsed.task.draw_tokens(jax.random.key(3), 9)
    each = jax.vmap(joint.sequence_log_likelihood, in_axes=(None, 0))(params, tokens)
    for amount in (4, 9):
        whole = joint.log_likelihood(params, jnp.asarray(collapsed.load(amount)))
        assert float(whole) == pytest.approx(float(each[:amount].sum()), rel=1e-12)
    at_load = joint.at_load(jnp.asarray(collapsed.load(4)))
    assert float(at_load.log_likelihood(params, jnp.asarray(0.0))) == pytest.approx(float(each[:4].sum()), rel=1e-12)


def test_the_copy_start_copies(key: jax.Array) -> None:
    joint = Joint(Population(CopyTask(8, 8)))
    params = joint.sample_copy(key)
    assert float(joint.order_parameters(params).copy_mass) > 0.6
    assert np.array_equal(params.value, np.eye(8))
    assert joint.size == 8
    assert joint.value_deviation == pytest.approx(1 / math.sqrt(8))


def test_the_engine_samples_the_same_marginal() -> None:
    """L = V = 8 across data amounts: means of m and q by both posteriors at 4.5 standard errors (false alarm 7e-5 in
    all ten), and thinned draws of m by Kolmogorov and Smirnov's two-sample test at a level of 1e-4 each (5e-4)."""
    collapsed = Population(CopyTask(8, 8))
    path = load_ladder([0.0, 1.5, 3.0, 4.5, 6.0])
    runs = []
    for posterior in (collapsed, Joint(collapsed)):
        start = jax.vmap(jax.vmap(posterior.sample_prior))(jax.random.split(jax.random.key(3), (4, 5)))
        runs.append(sample(posterior, path, start, Schedule(500, 150, 20), seed=2).order_parameters)
    for rung in range(5):
        for name in ("copy_mass", "participation"):
            one, other = (estimate(np.asarray(getattr(run, name))[:, :, rung]) for run in runs)
            assert abs(one.mean - other.mean) < 4.5 * math.hypot(one.error, other.error), (rung, name)
            assert one.error < 0.005
            assert other.error < 0.01
        thinned = [np.asarray(run.copy_mass)[:, ::20, rung].ravel() for run in runs]
        assert stats.ks_2samp(*thinned).pvalue > 1e-4, rung
