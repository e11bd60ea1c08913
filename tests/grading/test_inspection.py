"""The last checks of a submission that passed leave out what would take too long, and say so."""

import pytest

from grader.grading import inspection
from grader.grading.resources import Resources
from grader.verdict.models import Device
from tests import samples

LONG = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        for _ in range(300):
            x = x * 1.001
        return x

def get_inputs():
    return [torch.rand(2, 8)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("seconds", [60.0, 0.002])
@pytest.mark.parametrize("backward", [False, True])
def test_a_pass_that_takes_long_between_redzones_is_left_out(backward, seconds):
    problem, itself = samples.problem(source=LONG), samples.submission(source=LONG.replace("Model", "ModelNew"))
    with Resources() as resources, resources.candidate(itself, Device.CPU) as candidate:
        case = resources.oracle(problem, Device.CPU).case("full")
        found = inspection.judge_bounds(candidate, case, backward=backward, seconds=seconds)
    if seconds > 1:
        assert found is None
        return
    stage = "backward" if backward else "forward"
    assert (found.code, found.severity, found.stage) == ("checks_left_out", "info", stage)
    assert "took longer than 0.002 s between redzones" in found.message
