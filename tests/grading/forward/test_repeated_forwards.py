"""Forwards in a row: a value that one draw alone gets wrong is no result of an earlier call."""

import pytest

from grader.grading.forward.repeated_forwards import outputs_are_current
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Device
from tests import samples

FAULT = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = x * self.weight
        return 1.5 * y if x[0, 0].item() == {value!r} else y
"""
STALE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.kept = {{}}

    def forward(self, x):
        weight = self.kept.setdefault(x.data_ptr(), self.weight.detach().clone())
        return x * weight
"""


@pytest.mark.parametrize(
    ("source", "code"),
    [(FAULT, "output_wrong"), (STALE, "stale_output")],
    ids=["wrong on one draw", "weights kept by address"],
)
def test_a_draw_that_comes_out_wrong_is_stale_only_if_an_earlier_call_explains_it(tmp_path, source, code):
    problem = samples.problem(path=tmp_path / "scale.py")
    problem.path.write_text(problem.source)
    with Pipeline(GraderOptions(device="cpu", quick=True)) as grader:
        oracle = grader.resources.oracle(problem, Device.CPU)
        case, moved = oracle.case("full"), oracle.case("full", draw=1)
        written = samples.submission(source=source.format(value=moved.inputs[0][0, 0].item()))
        with grader.resources.candidate(written, Device.CPU) as candidate:
            found = outputs_are_current(candidate, oracle, case)
    assert found is not None
    assert found.code == code, found.message
