"""Rounding at a non-smooth point is no wrong result of a timed call."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from grader.catalog.problems import find_problems
from grader.grading.compare import error_sizes
from grader.grading.compare.expected import Expected
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.values import perturbed, perturbed_state
from grader.grading.resources import Resources
from grader.grading.timing.comparison import Comparison, ExactCheck, Row, _few_are_far, with_distances
from grader.grading.timing.draws import Draw, Source
from grader.verdict.models import Device

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def oracle():
    with Resources() as resources:
        yield resources.oracle(find_problems().problem("conv2d_mul_leaky_relu_gelu"), Device.CPU)


def evaluated(oracle, case, inputs, state):
    run = next(oracle.ask(case, [Pass(MODEL, inputs, state, case.cotangents, case.wrt, case.training)]))
    return run.gradients["input[0]"]


def flipped(oracle):
    """A draw, its gradient, and one that is as right but for an element that is too near to zero to tell its sign.

    Of half a million there is one in every third draw.
    """
    for draw in range(40):
        case = oracle.case("cpu", draw=draw)
        right = evaluated(oracle, case, case.inputs, case.state)
        for _ in range(4):
            found = evaluated(oracle, case, perturbed(case.inputs), perturbed_state(case.state))
            ((distance, size),) = error_sizes.distances([found], [right])
            if distance > TOLERANCE * size:
                return case, right, found
    raise AssertionError("no draw has one")


def test_only_an_element_at_a_non_smooth_point_is_explained(oracle):
    case, right, found = flipped(oracle)
    check = ExactCheck(oracle, case, Source.of(Draw(case.inputs, case.state, case.cotangents)), tf32=True)

    def explains(value):
        return check.passes("gradients", "input[0]", value)

    assert explains(right)
    assert explains(found)
    assert not explains(right * (1 + 3e-4 * torch.randn_like(right))), "a narrower type, everywhere"
    cut = right.clone()
    cut[0, 0] = 0
    assert not explains(cut)


def test_integers_of_a_timed_call_are_held_against_exact_values_too():
    right = torch.arange(32)
    expected = Expected("indices", (32,), torch.int64, right)
    same, other = (Row("outputs", "indices", expected, right, actual) for actual in (right, right.flip(0)))
    assert same.fault({}, lambda _: False) is None
    _, amount = other.fault({}, lambda _: False)
    assert "32 of 32" in amount
    assert other.fault({}, lambda _: True) is None


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_sparse_result_of_a_timed_call_may_not_be_empty(dtype):
    right = (torch.arange(1 << 20) % 2048 == 5).to(dtype)
    expected = Expected("code", (1 << 20,), dtype, right)
    _, amount = Row("outputs", "code", expected, right, torch.zeros_like(right)).fault({}, lambda _: False)
    assert "512 of 1048576" in amount


@pytest.mark.parametrize(("exactly", "wrong"), [(False, True), (True, False), (None, False)])
def test_the_end_of_a_decay_in_a_timed_call_may_not_be_zero(exactly, wrong):
    """Unless exact values say otherwise, or there are none."""
    right = torch.logspace(0, -20, 800)
    spread = partial(torch.full_like, right, 1e-27)
    expected = Expected("y", (800,), torch.float32, right.double(), spread=lambda *_: spread())
    cut = torch.where(right > 1e-9, right, 0)
    (row,) = with_distances([Row("outputs", "y", expected, right, cut)])
    assert row.fault({}, lambda _: exactly) is None
    assert (row.small_fault(lambda _: exactly) is not None) == wrong
    assert Row("outputs", "y", expected, right, right * (1 + 1e-7)).small_fault(lambda _: False) is None
    noisy = replace(expected, spread=lambda *_: spread().fill_(1))
    assert Row("outputs", "y", noisy, right, cut).small_fault(lambda _: False) is None


def test_a_few_far_elements_are_told_from_many_and_from_small_errors_everywhere():
    right = torch.randn(100_000, generator=torch.Generator().manual_seed(1))
    bound = 1e-5 * float(right.norm())
    few, many = right.clone(), right.clone()
    few[:8] += 5
    many[:80] += 5
    assert _few_are_far(right, few, bound, 1e-4)
    assert not _few_are_far(right, many, bound, 1e-4)
    assert not _few_are_far(right, right * (1 + 3e-5), bound, 1e-4), "a narrower type, everywhere"
    assert not _few_are_far(right, few * (1 + 3e-5), bound, 1e-4)


def test_no_huge_element_of_an_input_excuses_other_gradients(oracle):
    right = torch.randn(1 << 24, generator=torch.Generator().manual_seed(1))
    comparison = Comparison(oracle, oracle.case("cpu"), {}, {}, tf32=False)

    def moved(by, baseline=0.0):
        actual = right.clone()
        actual[:8] += by
        expected = Expected("x", (1 << 24,), torch.float32, right, error_l2=baseline * float(right.norm()))
        (row,) = with_distances([Row("gradients", "input[0]", expected, right, actual)])
        return comparison._moved_by_choices([row], {})

    assert moved(3.0) == pytest.approx(3.0 * 8**0.5 / 4096, rel=0.01)
    assert moved(3.0, baseline=1e-3) == moved(3.0), "the baseline error has such choices itself"
    assert moved(1e-6) == 0
    assert moved(1e3) == 0


@pytest.mark.parametrize(("times", "wrong"), [(3, False), (5, True)])
def test_another_gradient_is_off_by_four_times_what_choices_move_at_most(times, wrong):
    right = torch.randn(16, generator=torch.Generator().manual_seed(1))
    actual = right * (1 + times * 1e-3)
    (row,) = with_distances([Row("gradients", "shift", Expected("shift", (16,), torch.float32, right), right, actual)])
    assert (row.fault({}, lambda _: False, moved=lambda: 1e-3) is not None) == wrong


def test_a_choice_moves_more_of_the_few_rows_of_a_size_that_is_not_timed(oracle):
    right = torch.randn(2, 64, 256, 256, generator=torch.Generator().manual_seed(1))
    actual = right.clone()
    for column in range(0, 12, 3):
        actual[0, :, :3, column : column + 3] += 0.7  # four choices, each in a window of all channels
    expected = Expected("x", tuple(right.shape), torch.float32, right)
    (row,) = with_distances([Row("gradients", "input[0]", expected, right, actual)])
    moved = {
        timed: Comparison(oracle, oracle.case("cpu"), {}, {}, tf32=True, timed=timed)._moved_by_choices([row], {})
        for timed in (True, False)
    }
    assert moved == {True: 0, False: pytest.approx(0.0116, rel=0.01)}


@pytest.mark.parametrize(("error", "missing"), [(1e-6, False), (0.0, True)], ids=["noise", "zero in that draw"])
def test_only_a_gradient_that_is_rounding_in_every_draw_may_be_missing(error, missing):
    expected = Expected("bias", (8,), torch.float32, torch.zeros(8), error_l2=error)
    row = Row("gradients", "bias", expected, torch.full((8,), 1e-7), None)
    assert bool(row.fault({}, lambda _: False)) == missing


def test_a_gradient_without_a_finite_element_is_not_zero():
    everywhere = torch.ones(8, dtype=torch.bool)
    reference64 = torch.full((8,), torch.nan)
    assert not Expected("x", (8,), torch.float32, reference64, infinite=everywhere).is_zero
