"""Samplers of other libraries on the engine's density at one load, for `engine.py`: what each draws, and how fast.

Each function returns the draws as copy masses (chain, draw), the seconds they took after compilation and warm-up, and
the number of round trips that replicas made between the phases where it has replicas.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayes_attn import Population
from bayes_attn.sampling.samples import _count_returns


class Peer(NamedTuple):
    logits: np.ndarray | None
    """(chain, draw, query * key), where they were kept."""
    copy_mass: np.ndarray
    """(chain, draw)."""
    seconds: float
    phase_round_trips: int | None


def densities(posterior: Population, load: float) -> tuple[Any, Any]:
    """log-likelihood and log-prior of one matrix of logits."""

    def likelihood(logits: jax.Array) -> jax.Array:
        return posterior.log_likelihood(logits, jnp.asarray(load))

    return likelihood, posterior.log_prior


def copy_masses(posterior: Population, logits: Any) -> np.ndarray:
    flat = jnp.asarray(logits).reshape(-1, posterior.task.length, posterior.task.length)
    values = jax.lax.map(lambda one: posterior.order_parameters(one).copy_mass, flat, batch_size=1024)
    return np.asarray(values).reshape(logits.shape[:2])


def numpyro_nuts(posterior: Population, load: float, start: jax.Array, warmup: int, draws: int) -> Peer:
    """Chains vectorised; the second half of the draws is timed, so that nothing compiles."""
    from numpyro.infer import MCMC, NUTS

    likelihood, prior = densities(posterior, load)
    kernel = NUTS(potential_fn=lambda logits: -likelihood(logits) - prior(logits))
    options = {"num_chains": len(start), "chain_method": "vectorized", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=draws, **options)
    mcmc.run(jax.random.key(0), init_params=start)
    mcmc.post_warmup_state = mcmc.last_state
    mcmc.run(jax.random.key(1))
    mcmc.post_warmup_state = mcmc.last_state
    began = time.perf_counter()
    mcmc.run(jax.random.key(2))
    logits = np.asarray(jax.block_until_ready(mcmc.get_samples(group_by_chain=True)))
    seconds = time.perf_counter() - began
    return Peer(logits.reshape(*logits.shape[:2], -1), copy_masses(posterior, logits), seconds, None)


def blackjax_nuts(posterior: Population, load: float, start: jax.Array, warmup: int, draws: int) -> Peer:
    """Window adaptation per chain, then chains side by side under `vmap`."""
    import blackjax
    from blackjax.adaptation.base import get_filter_adapt_info_fn

    likelihood, prior = densities(posterior, load)

    def density(logits: jax.Array) -> jax.Array:
        return likelihood(logits) + prior(logits)

    adapt = blackjax.window_adaptation(blackjax.nuts, density, adaptation_info_fn=get_filter_adapt_info_fn())
    keys = jax.random.split(jax.random.key(0), len(start))
    (states, tuned), _ = jax.jit(jax.vmap(lambda key, one: adapt.run(key, one, num_steps=warmup)))(keys, start)
    kernel = blackjax.nuts.build_kernel()

    @jax.jit
    @jax.vmap
    def run(key: jax.Array, state: Any, tuned: Any) -> tuple[Any, jax.Array]:
        def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            state, _ = kernel(key, state, density, **tuned)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, draws))

    states, _ = jax.block_until_ready(run(keys, states, tuned))
    began = time.perf_counter()
    _, logits = jax.block_until_ready(run(jax.random.split(jax.random.key(1), len(start)), states, tuned))
    seconds = time.perf_counter() - began
    logits = np.asarray(logits)
    return Peer(logits.reshape(*logits.shape[:2], -1), copy_masses(posterior, logits), seconds, None)


def tfp_replica_exchange(
    posterior: Population,
    load: float,
    start: jax.Array,
    warmup: int,
    draws: int,
    rungs: int,
    borders: tuple[float, float],
) -> Peer:
    """TensorFlow Probability's ReplicaExchangeMC along the inverse temperature: even-odd swaps, tuned HMC."""
    from tensorflow_probability.substrates import jax as tfp

    likelihood, prior = densities(posterior, load)
    size = posterior.task.length
    signature = "(a,b)->()"
    betas = jnp.linspace(0.0, 1.0, rungs)[::-1]

    def inner(target: Any) -> Any:
        kernel = tfp.mcmc.HamiltonianMonteCarlo(target, step_size=jnp.full((rungs, 1, 1, 1), 0.3), num_leapfrog_steps=5)
        return tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, num_adaptation_steps=int(0.8 * warmup))

    remc = tfp.mcmc.ReplicaExchangeMC(
        target_log_prob_fn=None,
        untempered_log_prob_fn=jnp.vectorize(prior, signature=signature),
        tempered_log_prob_fn=jnp.vectorize(likelihood, signature=signature),
        inverse_temperatures=betas,
        make_kernel_fn=inner,
        swap_proposal_fn=tfp.mcmc.even_odd_swap_proposal_fn(1.0),
    )

    def trace(_state: Any, results: Any) -> Any:
        states = results.post_swap_replica_states[0]
        mass = jnp.vectorize(lambda logits: posterior.order_parameters(logits).copy_mass, signature=signature)
        return mass(states), results.swaps if hasattr(results, "swaps") else jnp.zeros(())

    @jax.jit
    def run(key: jax.Array, state: Any, results: Any) -> Any:
        return tfp.mcmc.sample_chain(
            draws,
            state,
            previous_kernel_results=results,
            kernel=remc,
            trace_fn=trace,
            seed=key,
            return_final_kernel_results=True,
        )

    @jax.jit
    def warm(key: jax.Array) -> Any:
        results = remc.bootstrap_results(start.reshape(-1, size, size))
        out = tfp.mcmc.sample_chain(
            warmup,
            start,
            previous_kernel_results=results,
            kernel=remc,
            trace_fn=None,
            seed=key,
            return_final_kernel_results=True,
        )
        return out.all_states[-1], out.final_kernel_results

    state, results = jax.block_until_ready(warm(jax.random.key(0)))
    jax.block_until_ready(run(jax.random.key(1), state, results))
    began = time.perf_counter()
    out = jax.block_until_ready(run(jax.random.key(2), state, results))
    seconds = time.perf_counter() - began
    by_rung, swaps = (np.asarray(values) for values in out.trace)
    trips = None
    if swaps.ndim == 3:  # (draw, rung, chain): from which rung each rung's state came
        replica_at = np.tile(np.arange(rungs)[:, None], (1, len(start)))
        rung_of_replica = []
        for source in swaps:
            replica_at = np.take_along_axis(replica_at, source, axis=0)
            rung_of_replica.append(np.argsort(replica_at, axis=0))
        rung = np.stack(rung_of_replica).transpose(2, 0, 1)
        mass = np.take_along_axis(by_rung.transpose(2, 0, 1), rung, axis=-1)
        trips = _count_returns((mass < borders[0]) & (rung == 0), (mass > borders[1]) & (rung == 0))
    return Peer(None, by_rung[:, 0].T, seconds, trips)


def flow_mc(posterior: Population, load: float, start: jax.Array, warmup: int, draws: int, rungs: int) -> Peer:
    """flowMC's bundle of MALA, a spline flow and parallel tempering; the flow proposes once per loop."""
    from flowMC.resource_strategy_bundle.RQSpline_MALA_PT import RQSpline_MALA_PT_Bundle
    from flowMC.Sampler import Sampler

    likelihood, prior = densities(posterior, load)
    size, chains, local = posterior.task.length, len(start), 20

    def matrix(x: jax.Array) -> jax.Array:
        return x.reshape(size, size)

    bundle = RQSpline_MALA_PT_Bundle(
        jax.random.key(0), chains, size**2, lambda x, _: likelihood(matrix(x)) + prior(matrix(x)),
        n_local_steps=local, n_global_steps=1, n_training_loops=max(1, warmup // local),
        n_production_loops=max(1, draws // local), n_epochs=1, mala_step_size=0.1, rq_spline_n_layers=2,
        n_temperatures=rungs, max_temperature=10.0, n_tempered_steps=local, logprior=lambda x, _: prior(matrix(x)),
    )  # fmt: skip
    sampler = Sampler(
        n_dim=size**2, n_chains=chains, rng_key=jax.random.key(1), resource_strategy_bundles=bundle,
        checkpoint_interval=0,
    )  # fmt: skip
    began = time.perf_counter()
    sampler.sample(start.reshape(chains, -1), {})
    seconds = time.perf_counter() - began
    logits = np.asarray(sampler.resources["positions_production"].data)
    shaped = logits.reshape(*logits.shape[:2], size, size)
    return Peer(logits, copy_masses(posterior, shaped), seconds, None)
