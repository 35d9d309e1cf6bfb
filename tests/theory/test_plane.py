"""The plane of load and field, and the susceptibility: two ways to the same numbers."""

import numpy as np
import pytest

from bayes_attn import CopyTask, InvalidInput, Population, theory


@pytest.fixture(scope="module")
def end_16(softmax_16: Population) -> theory.EndPoint:
    return theory.end_point(softmax_16)


def test_the_line_at_fixed_loads_is_the_line_at_fixed_fields(softmax_16: Population) -> None:
    """Coexistence found along the field and along the load, from different curves of saddle points."""
    loads = np.array([2.3, 2.5, 2.8])
    for load, along_field in zip(loads, theory.coexistence_line(softmax_16, loads), strict=True):
        along_load = theory.transition(softmax_16, along_field.critical)
        assert along_load.critical_load == pytest.approx(load, rel=1e-5)
        assert along_load.barrier == pytest.approx(along_field.barrier, rel=1e-3, abs=1e-5)
        assert along_load.copy_mass_copy == pytest.approx(along_field.copied[0], rel=1e-3)


def test_clausius_and_clapeyron(softmax_16: Population) -> None:
    """Slope of the line: L dh/dalpha times the jump of m is the jump of dU/dalpha."""
    action, step = theory.specification(softmax_16, "softmax").action, 0.01
    below, at, above = theory.coexistence_line(softmax_16, np.array([2.5 - step, 2.5, 2.5 + step]))
    slope = (above.critical - below.critical) / (2 * step)

    def heat(phase: tuple[float, float]) -> float:
        return float(action.energy(2.5 + 1e-4, *phase) - action.energy(2.5 - 1e-4, *phase)) / 2e-4

    jump = at.copied[0] - at.disordered[0]
    assert 16 * slope * jump == pytest.approx(heat(at.copied) - heat(at.disordered), rel=1e-3)


def test_the_line_ends_at_the_end_point(softmax_16: Population, end_16: theory.EndPoint) -> None:
    """Just below its load there is one phase at any field; above, spinodals close in like a power 3/2 (mean field)."""
    assert end_16.load_error < 1e-3 * end_16.load
    assert end_16.field_error < 1e-3 * abs(end_16.field)
    distances = np.array([0.01, 0.04])
    below, *above = theory.coexistence_line(softmax_16, end_16.load * (1 + np.array([-0.002, *distances])))
    assert below is None
    widths = [line.spinodal_high - line.spinodal_low for line in above]
    exponent = np.log(widths[1] / widths[0]) / np.log(distances[1] / distances[0])
    assert exponent == pytest.approx(1.5, abs=0.05)
    assert above[0].critical == pytest.approx(end_16.field, abs=0.3)
    assert above[0].disordered[0] < end_16.copy_mass < above[0].copied[0]


def test_the_sign_of_the_end_points_field_tells_first_order_from_crossover() -> None:
    for length, order in ((12, "crossover"), (13, "first")):
        posterior = Population(CopyTask(length, length))
        assert theory.transition(posterior).order == order
        assert (theory.end_point(posterior).field > 0) == (order == "first")


def test_beyond_the_end_point_the_load_has_no_transition(softmax_16: Population, end_16: theory.EndPoint) -> None:
    assert theory.transition(softmax_16, end_16.field + 0.2).order == "crossover"
    assert theory.transition(softmax_16, end_16.field - 0.2).order == "first"


def test_bad_fields_are_refused(linear_16: Population, softmax_16: Population) -> None:
    with pytest.raises(InvalidInput, match="`field` must be 0 for linear attention, got 1.0"):
        theory.transition(linear_16, 1.0)
    with pytest.raises(InvalidInput, match="`field` must be a finite number, got inf"):
        theory.transition(softmax_16, float("inf"))


def test_susceptibility_is_the_variance_of_weighted_prior_draws(
    softmax_16: Population, random_numbers: np.random.Generator
) -> None:
    """The leading order in 1/L is good to a tenth at L = 16."""
    load = 0.6
    weights = np.exp(random_numbers.standard_normal((40_000, 16, 16)))
    weights /= weights.sum(-1, keepdims=True)
    m = np.mean([weights[:, i, i - 1] for i in range(16)], axis=0)
    growth = 1 + load * (weights**2).sum((1, 2)) / 16
    boost = np.exp(-120 * (np.log(growth) - (load * m) ** 2 / growth) + 8)
    mean = np.average(m, weights=boost)
    variance = np.average((m - mean) ** 2, weights=boost)
    assert theory.susceptibility(softmax_16, [load])[0] == pytest.approx(16 * variance, rel=0.1)


def test_a_precursor_in_linear_attention_and_none_in_softmax() -> None:
    """Growth of the susceptibility up to the transition: with the size for linear attention, towards 1 for softmax."""

    def growth(length: int, attention: str) -> float:
        posterior = Population(CopyTask(length, length), attention)
        load = theory.transition(posterior).steepest_load
        without, at = theory.susceptibility(posterior, [0.0, load])
        return at / without

    assert growth(32, "linear") > 1.8 * growth(16, "linear") > 15
    assert growth(128, "softmax") < 1.1 < growth(32, "softmax") < growth(16, "softmax")


def test_the_way_to_the_end_leads_from_the_transition_past_the_end_point(transition_16: theory.Transition) -> None:
    """Beside the line of equal depth by about the logarithm of the peaks' widths, over R times their distance."""
    posterior = Population(CopyTask(16, 16))
    end = theory.end_point(posterior)
    loads, fields = theory.way_to_end(posterior)
    assert (loads[0], fields[0]) == (transition_16.critical_load, 0.0)
    assert loads[-2] == pytest.approx(end.load, rel=1e-5)
    assert fields[-2] == pytest.approx(end.field, rel=1e-5)
    assert loads[-1] < end.load
    assert fields[-1] > end.field
    assert np.all(np.diff(loads) < 0)
    assert np.all(np.diff(fields) > 0)
    depth = theory.coexistence_line(posterior, loads[1:8])
    assert np.all(np.abs(fields[1:8] - [line.critical for line in depth]) < 0.03)
    assert np.all(np.abs(fields[1:8] - [line.critical for line in depth]) > 1e-4)


def test_there_is_no_way_from_a_crossover() -> None:
    with pytest.raises(ArithmeticError, match="there is no first-order transition without a field"):
        theory.way_to_end(Population(CopyTask(12, 12)))
