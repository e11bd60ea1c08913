"""Rounding at a kink is told from a wrong tensor, in the elements that it touches and in no others."""

from dataclasses import replace

import pytest
import torch

from grader.catalog.problems import find_problems
from grader.grading.compare import nonsmooth, tolerance
from grader.grading.oracle.drawing import perturbed, perturbed_state
from grader.grading.oracle.evaluation import MODEL, Evaluation, evaluate
from grader.grading.oracle.large import LARGE_BYTES
from grader.grading.oracle.trackers import Trackers
from grader.grading.resources import Resources
from grader.verdict.models import Device

ULPS = 16.0
"""A convolution by Winograd rounds about as much as inputs moved by this."""


@pytest.fixture(scope="module")
def resources():
    with Resources() as resources:
        yield resources


def passes(expected, value):
    return tolerance.check(expected, value).status == "passed"


def flipped(resources, problem, variant, operand):
    """(expected, a right gradient that the baseline_error alone takes for a wrong one)."""
    oracle = resources.oracle(find_problems().problem(problem), Device.CPU)
    for draw in range(60):
        case = oracle.case(variant, draw=draw)
        expected = case.gradients[operand]
        for _ in range(4):
            moved = perturbed(case.inputs, Device.CPU, ULPS), perturbed_state(case.state, Device.CPU, ULPS)
            run = evaluate(oracle, MODEL, oracle.traits(case), *moved, case.cotangents, case.wrt, case.training)
            if not passes(replace(expected, spread=None), run.gradients[operand]):
                return expected, run.gradients[operand]
    raise AssertionError("no draw has one")


@pytest.mark.parametrize(
    ("problem", "variant", "operand"),
    [
        ("conv2d_mul_leaky_relu_gelu", "cpu", "input[0]"),
        ("conv2d_mul_leaky_relu_gelu", "cpu", "conv.weight"),
        ("conv_transpose3d_leaky_relu_mul_leaky_relu_max", "cpu", "input[0]"),
    ],
)
def test_a_value_on_the_other_side_of_a_kink_is_right_and_nothing_else_is(resources, problem, variant, operand):
    expected, found = flipped(resources, problem, variant, operand)
    assert passes(expected, found)
    exact, rms = expected.reference64, float(expected.reference64.square().mean().sqrt())
    assert not passes(expected, found * (1 + 3e-4 * torch.randn_like(found))), "a narrower type, everywhere"
    calm = nonsmooth.explained(expected.spread(), 1e-5 * (rms + exact.abs())) == 0
    assert calm.float().mean() > 0.5
    for position in calm.flatten().nonzero().flatten()[:: int(calm.sum()) // 10].tolist():
        other = found.clone()
        other.view(-1)[position] += 0.3 * rms
        assert not passes(expected, other), "an element that no kink touches"


def test_a_flip_is_told_from_usual_rounding():
    spread = 1e-6 * (1 + torch.rand(1000, dtype=torch.float64))
    spread[7] = 0.5
    explained = nonsmooth.explained(spread, torch.full_like(spread, 1e-5))
    assert explained[7] == nonsmooth.FACTOR * 0.5
    assert explained.count_nonzero() == 1
    assert nonsmooth.explained(spread * 100, torch.full_like(spread, 1e-5)).count_nonzero() == 1, "whatever is usual"
    assert nonsmooth.explained(torch.ones_like(spread), torch.full_like(spread, 1e-5)).count_nonzero() == 0, "all alike"


def test_a_kink_of_its_own_does_not_hide_what_one_in_the_yardstick_does_not():
    reference64 = torch.randn(1000, dtype=torch.float64)
    spread = torch.full((1000,), 1e-7, dtype=torch.float64)
    spread[7], spread[9] = 0.5, 1.5
    expected = tolerance.Expected(
        "y", (1000,), torch.float32, reference64, error_l2=0.5, error_max=0.5, spread=lambda: spread
    )
    right = reference64.float()
    right[9] += 5
    assert not passes(replace(expected, spread=None), right)
    assert passes(expected, right)
    assert not passes(expected, right * (1 + 1e-3 * torch.randn(1000)))


def test_what_may_wait_in_the_hosts_memory_is_left_to_the_yardstick():
    """On its way there, float64 becomes float32: half as many bytes."""

    def run(_):
        raise AssertionError("nobody needs it")

    for count, spreads in ((LARGE_BYTES // 8, False), (nonsmooth.MANY - 1, True)):
        eager = Evaluation({"y": torch.ones(count)}, {}, {})
        trackers = Trackers(eager, eager, has_float64=True, run=run)
        assert (trackers.expected("outputs", lambda _: 1.0)["y"].spread is not None) is spreads


def test_of_a_few_elements_all_may_be_touched():
    spread = torch.full((4,), 1e-3, dtype=torch.float64)
    assert (nonsmooth.explained(spread, torch.full_like(spread, 1e-5)) == nonsmooth.FACTOR * 1e-3).all()


def test_runs_are_made_when_they_may_decide():
    reference64 = torch.randn(100, dtype=torch.float64)
    asked = []

    def spread():
        asked.append(1)
        return torch.zeros_like(reference64)

    expected = tolerance.Expected("y", (100,), torch.float32, reference64, spread=spread)
    assert passes(expected, reference64.float())
    assert not passes(expected, reference64.float() + 1e-3), "wrong throughout"
    assert not asked
    other = reference64.float()
    other[3] += 1e-3
    assert not passes(expected, other)
    assert len(asked) == 1


def test_integers_may_differ_where_rounding_decides_them():
    reference64 = torch.arange(10)
    spread = torch.zeros(10, dtype=torch.float64)
    spread[3] = 1
    expected = tolerance.Expected("y", (10,), torch.int64, reference64, spread=lambda: spread)
    other = reference64.clone()
    other[3] = 7
    assert passes(expected, other)
    other[4] = 7
    assert not passes(expected, other)


def test_the_tolerance_moves_to_other_values_without_the_kinks():
    reference64 = torch.randn(100, dtype=torch.float64)
    expected = tolerance.Expected("y", (100,), torch.float32, reference64, error_l2=1e-6, spread=lambda: reference64)
    other = expected.around(reference64 + 1)
    assert other.spread is None
    assert (other.error_l2, other.name) == (1e-6, "y")
