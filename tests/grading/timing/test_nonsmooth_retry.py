"""Rounding at a kink is told from a wrong result of a timed call."""

import pytest
import torch

from grader.catalog.problems_and_submissions import find_problems
from grader.grading.compare import blocks, tolerance
from grader.grading.oracle.drawing import perturbed, perturbed_state
from grader.grading.oracle.evaluation import MODEL, evaluate
from grader.grading.resources import Resources
from grader.grading.timing.call import Draw
from grader.grading.timing.comparison import Comparison
from grader.grading.timing.nonsmooth_retry import SecondLook
from grader.verdict.models import Device

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def oracle():
    with Resources() as resources:
        yield resources.oracle(find_problems().problem("conv2d_mul_leaky_relu_gelu"), Device.CPU)


def evaluated(oracle, case, inputs, state):
    run = evaluate(oracle, MODEL, oracle.traits(case), inputs, state, case.cotangents, case.wrt, case.training)
    return run.gradients["input[0]"]


def flipped(oracle):
    """A draw, its gradient, and one that is as right but for an element that is too near to zero to tell its sign.

    Of half a million there is one in every third draw.
    """
    for draw in range(40):
        case = oracle.case("cpu", draw=draw)
        right = evaluated(oracle, case, case.inputs, case.state)
        for _ in range(4):
            found = evaluated(oracle, case, perturbed(case.inputs, Device.CPU), perturbed_state(case.state, Device.CPU))
            distance, size = blocks.distance(found, right)
            if distance > TOLERANCE * size:
                return case, right, found
    raise AssertionError("no draw has one")


def test_an_element_on_the_other_side_of_a_kink_is_explained_and_nothing_else_is(oracle):
    case, right, found = flipped(oracle)
    look = SecondLook(oracle, case, Draw(case.inputs, case.state, case.cotangents), tf32=True)

    def explains(value):
        return look.explains("gradients", "input[0]", value)

    assert explains(right)
    assert explains(found)
    assert not explains(right * (1 + 3e-4 * torch.randn_like(right))), "a narrower type, everywhere"
    cut = right.clone()
    cut[0, 0] = 0
    assert not explains(cut)


def test_integers_of_a_timed_call_get_a_second_look_too():
    comparison = Comparison(None, None, {}, {}, tf32=False)
    reference64 = torch.arange(32)
    expected = tolerance.Expected("indices", (32,), torch.int64, reference64)
    found = reference64.flip(0)
    assert comparison._difference(expected, reference64, reference64, lambda _: False) is None
    assert "32 of 32" in comparison._difference(expected, reference64, found, lambda _: False)
    assert comparison._difference(expected, reference64, found, lambda _: True) is None
