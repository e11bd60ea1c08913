"""Rounding at a kink is told from a wrong result of a timed call."""

import pytest
import torch

from grader.catalog import find_problems
from grader.models import Device
from grader.stages import numerics, passes
from grader.stages.drawing import perturbed, perturbed_state
from grader.stages.evaluating import MODEL, evaluate
from grader.stages.timing.call import Draw
from grader.stages.timing.comparison import Comparison
from grader.stages.timing.second_look import SecondLook
from grader.workshop import Workshop

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def desk():
    with Workshop() as workshop:
        yield workshop.desk(find_problems().problem("conv2d_mul_leaky_relu_gelu"), Device.CPU)


def evaluated(desk, case, inputs, state):
    run = evaluate(desk, MODEL, desk.traits(case), inputs, state, case.cotangents, case.wrt, case.training)
    return run.gradients["input[0]"]


def flipped(desk):
    """A draw, its gradient, and one that is as right but for an element that is too near to zero to tell its sign.

    Of half a million there is one in every third draw.
    """
    for draw in range(40):
        case = desk.case("cpu", draw=draw)
        right = evaluated(desk, case, case.inputs, case.state)
        for _ in range(4):
            found = evaluated(desk, case, perturbed(case.inputs, Device.CPU), perturbed_state(case.state, Device.CPU))
            distance, size = passes.distance(found, right)
            if distance > TOLERANCE * size:
                return case, right, found
    raise AssertionError("no draw has one")


def test_an_element_on_the_other_side_of_a_kink_is_explained_and_nothing_else_is(desk):
    case, right, found = flipped(desk)
    look = SecondLook(desk, case, Draw(case.inputs, case.state, case.cotangents), tf32=True)

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
    golden = torch.arange(32)
    expected = numerics.Expected("indices", (32,), torch.int64, golden)
    found = golden.flip(0)
    assert comparison._difference(expected, golden, golden, lambda _: False) is None
    assert "32 of 32" in comparison._difference(expected, golden, found, lambda _: False)
    assert comparison._difference(expected, golden, found, lambda _: True) is None
