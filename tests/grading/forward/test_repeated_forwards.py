"""Forwards in a row: a value that one draw alone gets wrong is no result of an earlier call."""

import pytest

from grader.grading.forward.repeated_forwards import outputs_are_current
from grader.grading.oracle import variations
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
        return 1.5 * y if x[{place}].item() == {value!r} else y
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
OUTPUT_KEPT = STALE.replace("self.weight.detach().clone()", "x * self.weight").replace(
    "return x * weight", "return weight"
)


@pytest.mark.parametrize(
    ("source", "wrong_on", "code"),
    [
        (FAULT, "another draw", "output_wrong"),
        (FAULT, "edited inputs", "output_wrong"),
        (STALE, "", "stale_output"),
        (OUTPUT_KEPT, "", "stale_output"),
    ],
    ids=["wrong on one draw", "wrong for one element", "weights kept by address", "outputs kept by address"],
)
def test_what_comes_out_wrong_is_stale_only_if_an_earlier_call_explains_it(tmp_path, source, wrong_on, code):
    problem = samples.problem(path=tmp_path / "scale.py")
    problem.path.write_text(problem.source)
    with Pipeline(GraderOptions(device="cpu", quick=True)) as grader:
        oracle = grader.resources.oracle(problem, Device.CPU)
        case = oracle.case("full")
        other = oracle.case("full", draw=1) if wrong_on == "another draw" else variations.edited(oracle, case)
        place = tuple((other.inputs[0] != case.inputs[0]).nonzero()[0].tolist())
        written = samples.submission(source=source.format(place=place, value=other.inputs[0][place].item()))
        with grader.resources.candidate(written, Device.CPU) as candidate:
            found = outputs_are_current(candidate, oracle, case)
    assert found is not None
    assert found.code == code, found.message
    assert wrong_on in found.message
