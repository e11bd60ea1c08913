"""A timed call that is wrong because of its values is told from one that is wrong because it is timed."""

import pytest
import torch

from grader.grading.messages import diagnose
from grader.grading.resources import Resources
from grader.grading.timing.calls import Call
from grader.grading.timing.draws import Draw, Source
from grader.grading.timing.pair import WrongCall
from grader.grading.timing.untimed import faults_of_values
from grader.verdict.models import Device
from tests import samples

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x.sum(1) + 90)

def get_inputs():
    return [torch.randn(16, 16)]

def get_init_inputs():
    return []
"""
SUBMISSION = """
import torch
from torch import nn

class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.relu(x.sum(1) + 90)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return ({gradient})[:, None].expand(-1, 16)

class ModelNew(nn.Module):
    def forward(self, x):
        return Clamped.apply(x){output}
"""


def found(gradient="g", output="", timed_factor=1.0):
    """The diagnoses for a call with a row that the drawn inputs never have."""
    submission = samples.submission(source=SUBMISSION.format(gradient=gradient, output=output))
    with Resources() as resources:
        oracle = resources.oracle(samples.problem(source=PROBLEM), Device.CPU)
        case = oracle.case("full")
        inputs = case.inputs[0].clone()
        inputs[3] -= 10
        right = torch.relu(inputs.sum(1) + 90)
        sealed = {
            "output:t:output": torch.where(right == 0, 1.0, right) if output else right,
            "grad:t:input[0]": timed_factor * case.cotangents["output"][:, None].expand(-1, 16),
        }
        wrong = diagnose("timed_gradient_wrong", "it is wrong")
        source = Source.of(Draw([inputs], {}, case.cotangents))
        with resources.candidate(submission, Device.CPU) as candidate:
            return faults_of_values(candidate, oracle, WrongCall(wrong, case, source, Call({}, sealed)))


def test_a_backward_that_is_wrong_for_these_values_is_told_so():
    (diagnosis,) = found()
    assert diagnosis.code == "grad_wrong"
    assert diagnosis.message.startswith("on another draw of inputs and parameters, gradient of `x` is not zero")
    assert "at row 3, and right elsewhere" in diagnosis.message


def test_a_forward_too():
    (diagnosis,) = found("g * (y > 0)", " + (x.sum(1) < -90)")
    assert diagnosis.code == "output_wrong"
    assert diagnosis.message.startswith("on another draw of inputs and parameters, output")


@pytest.mark.parametrize(("gradient", "factor"), [("g * (y > 0)", 1.0), ("g", 0.5)])
def test_what_an_untimed_call_does_not_repeat_is_the_timing(gradient, factor):
    assert found(gradient, timed_factor=factor) == []
