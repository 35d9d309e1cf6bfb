"""Samplers of other libraries behind the same call: numpyro's NUTS, blackjax's NUTS and adaptive tempered SMC.

They share no kernel, adaptation or swap with the engine, and run every rung alone: where the engine is right they agree
with it, as long as the target has one phase.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.base import get_filter_adapt_info_fn
from blackjax.smc import resampling
from jaxtyping import PRNGKeyArray, PyTree

from bayes_attn.posterior import Posterior
from bayes_attn.sampling.controls import Controls, log_density
from bayes_attn.sampling.samples import Samples, Schedule

Progress = Callable[[int, int], None] | None
SMC_STEPS = 10
"""Hamiltonian trajectories of each particle per temperature."""
SMC_TARGET_ESS = 0.7
SMC_STEP_SIZE = 0.25
"""Of the leapfrog steps, in units of a particle's spread."""
MOST_TEMPERATURES = 500


def _rungs(ladder: Controls) -> Iterator[Controls]:
    for rung in range(len(ladder.load)):
        yield jax.tree.map(lambda control, rung=rung: jnp.asarray(control)[rung], ladder)


def _numpyro_nuts(
    posterior: Posterior, controls: Controls, initial: PyTree, schedule: Schedule, key: PRNGKeyArray
) -> tuple[PyTree, dict[str, Any]]:
    from numpyro.infer import MCMC, NUTS

    def potential(params: PyTree) -> jax.Array:
        return -log_density(posterior, params, controls)

    mcmc = MCMC(
        NUTS(potential_fn=potential),
        num_warmup=schedule.warmup,
        num_samples=schedule.scans,
        num_chains=jax.tree.leaves(initial)[0].shape[0],
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(key, init_params=initial, extra_fields=("diverging", "accept_prob", "energy", "adapt_state.step_size"))
    extra = mcmc.get_extra_fields(group_by_chain=True)
    stats = {"acceptance": extra["accept_prob"], "divergent": extra["diverging"], "energy": extra["energy"]}
    return mcmc.get_samples(group_by_chain=True), stats | {"step_size": extra["adapt_state.step_size"].mean()}


def _blackjax_nuts(
    posterior: Posterior, controls: Controls, initial: PyTree, schedule: Schedule, key: PRNGKeyArray
) -> tuple[PyTree, dict[str, Any]]:
    def density(params: PyTree) -> jax.Array:
        return log_density(posterior, params, controls)

    no_record = get_filter_adapt_info_fn()
    adapt = blackjax.window_adaptation(blackjax.nuts, density, adaptation_info_fn=no_record)

    @jax.jit
    @jax.vmap
    def one_chain(key: PRNGKeyArray, start: PyTree) -> tuple[PyTree, Any, Any]:
        warm_key, draw_key = jax.random.split(key)
        (state, tuned), _ = adapt.run(warm_key, start, num_steps=schedule.warmup)  # pyright: ignore[reportCallIssue]
        kernel = blackjax.nuts(density, **tuned)

        def step(state: Any, key: PRNGKeyArray) -> tuple[Any, tuple[PyTree, dict[str, Any]]]:
            info: Any
            state, info = kernel.step(key, state)
            stats = {"acceptance": info.acceptance_rate, "divergent": info.is_divergent, "energy": info.energy}
            return state, (state.position, stats)

        _, (draws, stats) = jax.lax.scan(step, state, jax.random.split(draw_key, schedule.scans))
        return draws, stats, tuned["step_size"]

    keys = jax.random.split(key, jax.tree.leaves(initial)[0].shape[0])
    draws, stats, step_size = one_chain(keys, initial)
    return draws, stats | {"step_size": step_size.mean()}


def _tempered_smc(
    posterior: Posterior, controls: Controls, initial: PyTree, schedule: Schedule, key: PRNGKeyArray
) -> tuple[PyTree, dict[str, Any]]:
    """Particles stand for scans; each chain is a population of its own, from the prior (`initial` is not used)."""

    def likelihood(params: PyTree) -> jax.Array:
        return log_density(posterior, params, controls) - posterior.log_prior(params)

    trajectory = (schedule.max_steps + 1) // 2

    def step_fn(key: PRNGKeyArray, state: Any, density: Callable, step_size: Any, metric: Any) -> tuple[Any, Any]:
        return blackjax.hmc.build_kernel()(key, state, density, step_size, metric, trajectory)

    dimension = sum(leaf[0].size for leaf in jax.tree.leaves(initial))
    smc = blackjax.adaptive_tempered_smc(
        posterior.log_prior, likelihood, step_fn, blackjax.hmc.init,
        {"step_size": jnp.full(1, SMC_STEP_SIZE), "metric": jnp.ones((1, dimension))},
        resampling.systematic, SMC_TARGET_ESS, num_mcmc_steps=SMC_STEPS,
    )  # fmt: skip

    @jax.jit
    def one_population(key: PRNGKeyArray) -> tuple[PyTree, jax.Array, jax.Array]:
        prior_key, key = jax.random.split(key)
        particles = jax.vmap(posterior.sample_prior)(jax.random.split(prior_key, schedule.scans))
        zero = jnp.zeros(())

        def more(carried: Any) -> jax.Array:
            state, _, _, number = carried
            return (state.tempering_param < 1) & (number < MOST_TEMPERATURES)

        def body(carried: Any) -> Any:
            info: Any
            state, log_evidence, _, number = carried
            state, info = smc.step(jax.random.fold_in(key, number), state)
            gained = info.log_likelihood_increment
            return state, log_evidence + gained, info.update_info.acceptance_rate.mean(), number + 1

        start = (smc.init(particles, None), zero, zero, jnp.zeros((), int))
        state, log_evidence, acceptance, _ = jax.lax.while_loop(more, body, start)
        return state.particles, log_evidence, acceptance

    keys = jax.random.split(key, jax.tree.leaves(initial)[0].shape[0])
    populations, evidence, acceptance = zip(*(one_population(one) for one in keys), strict=True)
    draws = jax.tree.map(lambda *leaves: jnp.stack(leaves), *populations)
    shape = (len(keys), schedule.scans)
    return draws, {
        "acceptance": np.broadcast_to(np.asarray(acceptance)[:, None], shape),
        "divergent": np.zeros(shape, bool),
        "energy": np.full(shape, np.nan),
        "step_size": SMC_STEP_SIZE,
        "log_evidence": np.asarray(evidence),
    }


def _independent(
    name: str,
    run: Callable[..., tuple[PyTree, dict[str, Any]]],
    posterior: Posterior,
    ladder: Controls,
    initial: PyTree,
    schedule: Schedule,
    key: PRNGKeyArray,
    progress: Progress,
) -> Samples:
    """Every rung alone, put together as `Samples`."""
    found: list[dict[str, Any]] = []
    rungs = len(ladder.load)
    for rung, controls in enumerate(_rungs(ladder)):
        start = jax.tree.map(lambda leaf, rung=rung: leaf[:, rung], initial)
        draws, stats = run(posterior, controls, start, schedule, jax.random.fold_in(key, rung))
        at_draws = jax.jit(jax.vmap(jax.vmap(lambda params, at=controls: log_density(posterior, params, at))))(draws)
        order = jax.jit(jax.vmap(jax.vmap(posterior.order_parameters)))(draws)
        kept = jax.tree.map(lambda leaf: leaf[:, schedule.thin - 1 :: schedule.thin].astype(jnp.float32), draws)
        stats |= {"log_density": at_draws, "order": order, "params": kept}
        found.append(jax.tree.map(np.asarray, stats))
        if progress is not None:
            progress((rung + 1) * schedule.total, rungs * schedule.total)
    dimension = sum(leaf[0, 0].size for leaf in jax.tree.leaves(initial))
    shape = (*found[0]["log_density"].shape, rungs)

    def stacked(key: str) -> Any:
        return jax.tree.map(lambda *leaves: np.stack(leaves, axis=2), *(one[key] for one in found))

    return Samples(
        path=jax.tree.map(np.asarray, ladder),
        position=np.arange(float(rungs)),
        order_parameters=stacked("order"),
        log_density=stacked("log_density"),
        acceptance=stacked("acceptance"),
        divergent=stacked("divergent"),
        non_finite=~np.isfinite(stacked("log_density")),
        energy=stacked("energy"),
        replica_at=np.broadcast_to(np.arange(rungs), shape),
        gain=np.zeros(shape),
        params=stacked("params"),
        step_size=np.array([float(one["step_size"]) for one in found]),
        scale=np.ones((rungs, dimension)),
        rounds=(),
        schedule=schedule,
        sampler=name,
        log_evidence=np.stack([one["log_evidence"] for one in found], -1) if "log_evidence" in found[0] else None,
    )


ORACLES = {
    name: partial(_independent, name, run)
    for name, run in (
        ("numpyro-nuts", _numpyro_nuts),
        ("blackjax-nuts", _blackjax_nuts),
        ("tempered-smc", _tempered_smc),
    )
}
"""Name -> (posterior, ladder, initial, schedule, key, progress) -> Samples."""
