"""Several posteriors in one run: each against its closed form, against runs of its own, and refusals."""

from collections.abc import Callable
from pathlib import Path as File

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian import Gaussian

from bayes_attn import CopyTask, DataSet, InvalidInput, Population, Samples, Schedule, Starts, load_ladder, sample
from bayes_attn.diagnostics import estimate
from bayes_attn.free_energy import stepping_stone
from bayes_attn.sampling import temperature_path
from bayes_attn.sampling.samples import RECORDED

LOADS = np.array([0.0, 0.1, 0.4, 1.0])
SHORT = Schedule(60, 4, 10)


def gaussian(center: float = 1.5, width: float = 0.5, dimension: int = 3) -> Gaussian:
    """With arrays, which is what posteriors of one run may differ in."""
    return Gaussian(dimension, jnp.asarray(center), jnp.asarray(width))


def data_set(tokens: np.ndarray, prefixes: tuple[int, ...] = (10, 20, 40)) -> DataSet:
    return DataSet(tokens, CopyTask(5, 4), noise=0.5, prefixes=np.array(prefixes))


def tokens(seed: int, vocab: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, vocab, (40, 5))


PAIR = [gaussian(1.5), gaussian(-0.5)]


def planted(_key: jax.Array) -> dict[str, jax.Array]:
    return {"x": jnp.ones(3)}


STARTS = Starts((PAIR[0].sample_prior,), 2)


def test_three_posteriors_agree_with_their_closed_forms() -> None:
    """Means and evidences at three rungs of each, at 4.5 standard errors over 16 chains of each (false alarm 4e-3)."""
    posteriors = [gaussian(1.5), gaussian(-0.5), gaussian(0.8, width=0.7)]
    starts = Starts((posteriors[0].sample_prior,), 16)
    samples = sample(posteriors, load_ladder(LOADS), starts, Schedule(300, 60, 20), seed=2)
    assert samples.posteriors == 3
    assert samples.gain.shape == (48, 1200, 4)
    for number, posterior in enumerate(posteriors):
        part = samples.of(number)
        mean, _ = posterior.exact(LOADS)
        evidence, exact = stepping_stone(part), np.asarray(posterior.log_evidence(LOADS))
        for rung in (1, 2, 3):
            found = estimate(part.order_parameters.first[:, :, rung])
            assert abs(found.mean - mean[rung]) < 4.5 * found.error
            assert found.error < 0.02
            assert abs(evidence.value[rung] - exact[rung]) < 4.5 * evidence.error[rung]
            assert evidence.error[rung] < 0.1


@pytest.fixture(scope="module")
def twice() -> Samples:
    """One posterior, given twice."""
    starts = Starts((PAIR[0].sample_prior, planted), 4)
    return sample([PAIR[0], PAIR[0]], temperature_path(1.0), starts, SHORT, 5, rungs=5)


def test_a_posterior_twice_is_the_posterior_with_twice_the_chains(twice: Samples) -> None:
    """Ladder, metric and step sizes are learned from all chains, and random numbers belong to the chains' numbers."""
    starts = Starts((PAIR[0].sample_prior, planted), 8)
    once = sample(PAIR[0], temperature_path(1.0), starts, SHORT, 5, rungs=5)
    assert (once.posteriors, twice.posteriors) == (1, 2)
    assert not np.allclose(once.position, np.linspace(0, 1, 5))
    names = [*RECORDED, "position", "step_size", "scale", "params", "order_parameters", "path", "rounds"]
    for name in names:
        pairs = zip(jax.tree.leaves(getattr(twice, name)), jax.tree.leaves(getattr(once, name)), strict=True)
        for two, one in pairs:
            np.testing.assert_allclose(two, one, rtol=1e-6, atol=1e-6, err_msg=name)


def test_a_part_is_the_chains_of_one_posterior(twice: Samples) -> None:
    for number in (0, 1):
        part, chains = twice.of(number), slice(4 * number, 4 * number + 4)
        assert part.posteriors == 1
        for name in RECORDED:
            np.testing.assert_array_equal(getattr(part, name), getattr(twice, name)[chains])
        np.testing.assert_array_equal(part.params["x"], twice.params["x"][chains])
        np.testing.assert_array_equal(part.order_parameters.first, twice.order_parameters.first[chains])
        np.testing.assert_array_equal(part.position, twice.position)
    assert twice.at([0, 2]).of(1).energy.shape == (4, 40, 2)
    single = twice.of(0)
    np.testing.assert_array_equal(single.of(0).gain, single.gain)
    for samples, number, rule in ((twice, 2, "below the number of posteriors, 2"), (single, 1, "posteriors, 1, got 1")):
        with pytest.raises(InvalidInput, match=f"Samples: `number` must be .*{rule}"):
            samples.of(number)
    with pytest.raises(InvalidInput, match="Samples: `number` must be an integer of at least 0, got -1"):
        twice.of(-1)


@pytest.mark.parametrize(("sampler", "precision"), [("nuts", "double"), ("hmc", "mixed")])
def test_other_explorers_take_several(sampler: str, precision: str) -> None:
    """Nothing more than that the posteriors are told apart: their means lie 1.6 apart, with deviations near 0.4."""
    samples = sample(
        PAIR, load_ladder([0.0, 1.0]), STARTS, Schedule(100, 20, 10), 1, sampler=sampler, precision=precision
    )
    first, second = (samples.of(number).order_parameters.mean_coordinate[:, :, 1].mean() for number in (0, 1))
    assert first - second > 1.0


def test_a_sequence_of_one_is_the_posterior_itself() -> None:
    alone, listed = (sample(p, load_ladder([0.0, 1.0]), STARTS, SHORT, 1) for p in (PAIR[0], [PAIR[0]]))
    assert listed.posteriors == 1
    for one, other in zip(jax.tree.leaves(vars(alone)), jax.tree.leaves(vars(listed)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_posteriors_resume_to_the_last_bit(tmp_path: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayes_attn.sampling.run.CHECKPOINT_SECONDS", 0.0)

    class Stop(Exception):
        pass

    def run(name: str, progress: Callable[[int, int], None] | None = None, resume: bool = False, **changes) -> Samples:
        posteriors, chosen = changes.get("posteriors", PAIR), load_ladder([0.0, 1.0])
        return sample(posteriors, chosen, STARTS, SHORT, 1, progress, folder=tmp_path / name, resume=resume)

    def stop(_done: int, _total: int) -> None:
        raise Stop

    whole = run("whole")
    for attempt in range(20):
        try:
            run("stopped", stop, resume=attempt > 0)
        except Stop:
            continue
        break
    assert attempt > 3
    resumed = run("stopped", resume=True)
    assert resumed.posteriors == whole.posteriors == 2
    files = [{f.name: f.read_bytes() for f in (tmp_path / name).glob("*.npy")} for name in ("whole", "stopped")]
    assert len(files[0]) == len(RECORDED) + 3
    assert files[0] == files[1]
    # The second posterior belongs to the description as the first does.
    with pytest.raises(InvalidInput, match="`posterior` was '2 times Gaussian .*' there"):
        run("whole", resume=True, posteriors=[PAIR[0], gaussian(-0.6)])


def test_two_data_sets_are_sampled_as_each_by_itself() -> None:
    """Copy mass and participation at three rungs, at 4.5 combined standard errors (12 differences: 8e-5).

    Where all tokens are one token every attention copies, so that these data say nothing about the order parameters
    that the others raise.
    """
    telling, silent = data_set(tokens(1)), data_set(np.zeros((40, 5), int))
    ladder = load_ladder(np.array([0.0, 0.25, 0.5, 1.0]) * telling.load(40))
    starts = Starts((telling.sample_prior, telling.sample_copy), 4)
    schedule = Schedule(200, 60, 20)
    joint = sample([telling, silent], ladder, starts, schedule, 3)
    parts = [joint.of(number).order_parameters for number in (0, 1)]
    alone = [sample(p, ladder, starts, schedule, 4 + n).order_parameters for n, p in enumerate((telling, silent))]
    for part, own in zip(parts, alone, strict=True):
        for name in ("copy_mass", "participation"):
            for rung in (1, 2, 3):
                ours, theirs = (estimate(np.asarray(getattr(order, name))[:, :, rung]) for order in (part, own))
                assert abs(ours.mean - theirs.mean) < 4.5 * np.hypot(ours.error, theirs.error)
                assert ours.error < 0.02
    raised, level = (estimate(part.copy_mass[:, :, 3]) for part in parts)
    assert raised.mean - level.mean > 10 * np.hypot(raised.error, level.error)


class Other(Gaussian):
    pass


@pytest.mark.parametrize(
    ("posteriors", "message"),
    [
        ([], r"be one or a sequence of at least one, got \[\]"),
        ([*PAIR, Other()], "hold .*the type is 'Gaussian' in number 0 and another in number 2.*, got 'Other'"),
        ([PAIR[0], gaussian(dimension=2)], "hold .*`dimension` is 3 in number 0 and another in number 1.*, got 2"),
        ([Gaussian(), Gaussian(center=1.0)], "hold .*`center`, where only arrays may differ, is 1.5 in .*, got 1.0"),
        (
            [PAIR[0], Gaussian(3, jnp.ones(3), jnp.asarray(0.5))],
            r"hold .*the shape of `center` is 'float64\[\]' in .*, got 'float64\[3\]'",
        ),
        (
            [data_set(tokens(1)), data_set(tokens(2), (20, 40))],
            r"hold .*the shape of `prefixes` is 'float64\[4\]' in .*, got 'float64\[3\]'",
        ),
        (
            [Population(CopyTask(5, 4)), Population(CopyTask(5, 4), noise=0.5)],
            "hold .*`noise` is 1.0 in number 0 and another in number 1.*, got 0.5",
        ),
        (
            [Population(CopyTask(5, 4)), Population(CopyTask(5, 4), logit_scale=2.0)],
            "hold .*`prior.standard_deviation` is 1.0 in number 0 and another in number 1.*, got 2.0",
        ),
    ],
)
def test_posteriors_that_are_not_alike_are_refused(posteriors: list, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^sample: `posterior` must {message}.$"):
        sample(posteriors, load_ladder(LOADS), STARTS, SHORT, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "numpyro-nuts"}, "`posterior` must be a single one for the sampler numpyro-nuts, got 2"),
        ({"one_by_one": True}, "`one_by_one` must be False where there are several posteriors, got True"),
        (
            {"initial": {"x": jnp.zeros((3, 4, 3))}},
            "`initial` must have as many chains for each of the 2 posteriors, got 3",
        ),
        (
            {"initial": {"x": jnp.zeros((4, 4, 3)).at[3, 1].set(jnp.nan)}},
            "finite log-density at every rung, got nan at chain 3, rung 1",
        ),
    ],
)
def test_what_does_not_go_with_several_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sample(PAIR, load_ladder(LOADS), **({"initial": STARTS, "schedule": SHORT, "seed": 0} | settings))


def test_every_posterior_is_checked() -> None:
    """Against the loads of the path, and its own chains' starts against its own density."""
    few = data_set(tokens(1)[:20], (5, 10, 20))
    ladder = load_ladder([0.0, few.load(40)])
    with pytest.raises(InvalidInput, match="`load` must ask for at most the 20 sequences at hand"):
        sample([data_set(tokens(1)), few], ladder, Starts((few.sample_prior,), 1), SHORT, 0)
    # A width of 0 leaves no density anywhere.
    with pytest.raises(
        InvalidInput, match="`initial` must have a finite .*, got none in 20 draws by .*at chain 2, rung"
    ):
        sample([PAIR[0], gaussian(width=0.0)], load_ladder([0.5, 1.0]), STARTS, SHORT, 0)
