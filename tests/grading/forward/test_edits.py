"""The last element of each input changes far, within what the reference takes."""

import pytest

from grader.grading.forward.edits import edits, elsewhere
from grader.grading.resources import Resources
from grader.verdict.models import Device
from tests import samples

PROBLEM = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def forward(self, x, y):
        return {returned}

def get_init_inputs():
    return []

def get_inputs():
    return [{x}, {y}]
"""


@pytest.fixture(scope="module")
def resources():
    with Resources() as made:
        yield made


def last_edits(resources, returned, x, y="torch.rand(300, 301)"):
    source = PROBLEM.format(returned=returned, x=x, y=y)
    oracle = resources.oracle(samples.problem(source=source), Device.CPU)
    case = oracle.case("full")
    return oracle, case, {next(iter(edit.last)): edit for edit in edits(oracle, case) if edit.last}


@pytest.mark.parametrize(
    ("returned", "x", "largest"),
    [
        ("(x - y).abs().mean()", "torch.rand(300, 301)", 300.0),
        ("F.binary_cross_entropy(x, 0 * y, reduction='none').sum(1)", "0.9 * torch.rand(300, 301)", 1.0),
        ("torch.exp(x).mean() + y.mean()", "torch.randn(300, 301)", 88.0),
    ],
    ids=["far", "in an asserted range", "below an overflow"],
)
def test_the_last_element_gets_a_large_value_that_the_reference_takes(resources, returned, x, largest):
    _, case, found = last_edits(resources, returned, x)
    edit = found["input[0]"]
    new = edit.last["input[0]"]
    value = edit.case.inputs[0]
    moved = (value != case.inputs[0]).nonzero()
    assert moved.tolist() == [[299, 300]]
    assert new <= largest
    assert largest != 300 or new > 150
    assert float(value[-1, -1]) == pytest.approx(new)
    assert all(bool(output.reference64.isfinite().all()) for output in edit.case.outputs.values())


@pytest.mark.parametrize(
    ("returned", "x"),
    [
        ("y + x", "(torch.rand(300, 301) > 0.5).float()"),  # a mask
        ("y * x", "torch.softmax(torch.randn(300, 301), 1)"),  # rows with one sum
        ("y * x", "torch.linspace(0.5, 2, 301).expand(300, 301).clone()"),  # the same in every draw
        ("y * 1.0", "torch.randn(300, 301)"),  # unused
    ],
    ids=["mask", "sums", "constant", "unused"],
)
def test_no_element_changes_alone_where_it_may_not_or_does_not_count(resources, returned, x):
    _, _, found = last_edits(resources, returned, x)
    assert list(found) == ["input[1]"]


def test_the_same_value_elsewhere_is_a_control(resources):
    oracle, case, found = last_edits(resources, "(x - y).abs().mean()", "torch.rand(300, 301)")
    controls = elsewhere(oracle, case, found["input[0]"])
    assert len(controls) == 4
    for control in controls:
        ((row, column),) = (control.case.inputs[0] != case.inputs[0]).nonzero().tolist()
        assert (row, column) != (299, 300)
        assert float(control.case.inputs[0][row, column]) == pytest.approx(found["input[0]"].last["input[0]"])
