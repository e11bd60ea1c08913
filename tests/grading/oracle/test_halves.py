"""The float64 run in two halves of the batch: of references whose rows are independent, and of no others."""

import pytest
import torch

from grader import protocol as p
from grader.grading.oracle.evaluation import MODEL64, Pass
from grader.grading.oracle.halves import Halves, halves
from grader.grading.resources import Resources
from grader.machine.backends.cpu import CpuBackend
from grader.verdict.models import Device, Problem

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 6)

    def forward(self, x{more}):
        y = self.linear(x)
        return {returned}

def get_inputs():
    return [torch.randn(16, 8), *[{inputs}]]
"""


@pytest.fixture(scope="module")
def resources():
    with Resources() as made:
        yield made


@pytest.fixture
def found(resources, tmp_path, monkeypatch):
    def halves_of(returned, more="", inputs=""):
        source = SOURCE.format(returned=returned, more=more, inputs=inputs)
        problem = Problem(id="rows", path=tmp_path / "rows.py", source=source)
        oracle = resources.oracle(problem, Device.CPU)
        case, evaluate_each = oracle.case("full"), oracle.models.evaluate_each
        traits = oracle.traits(case)
        whole = Pass.of(case, MODEL64)
        return halves(evaluate_each, traits, whole), lambda: next(evaluate_each(traits, [whole]))

    monkeypatch.setattr(p, "SPARE_BYTES", 0)
    return halves_of


@pytest.mark.parametrize(
    ("returned", "more", "inputs"),
    [
        ("torch.softmax(y, 1)", "", ""),
        ("(y * other).sum(1), y.argmax(1)", ", other", "torch.randn(16, 6)"),
        ("torch.nn.functional.gelu(y) @ weight", ", weight", "torch.randn(6, 3)"),
    ],
)
def test_two_halves_give_the_results_of_the_whole(found, returned, more, inputs):
    parts, whole = found(returned, more, inputs)
    assert parts is not None
    joined, together = parts.run(), whole()
    assert joined.gradients.keys() == together.gradients.keys() >= {"input[0]", "linear.weight", "linear.bias"}
    for table in ("outputs", "gradients"):
        for name, value in getattr(together, table).items():
            torch.testing.assert_close(getattr(joined, table)[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "returned", ["y - y.mean(0)", "y.mean()", "y + y.flip(0)", "y.cumsum(0)", "y + 1e-6 * y.roll(2, 0)", "y.T"]
)
def test_rows_that_depend_on_others_are_run_together(found, returned):
    assert found(returned)[0] is None


def test_a_small_run_is_made_whole(found, monkeypatch):
    monkeypatch.setattr(p, "SPARE_BYTES", 1 << 30)
    assert found("torch.softmax(y, 1)")[0] is None


def test_a_case_at_full_size_has_its_float64_values_from_halves(found, resources, tmp_path, monkeypatch):
    runs = []
    run = Halves.run
    monkeypatch.setattr(Halves, "run", lambda self: runs.append(self.rows) or run(self))
    monkeypatch.setattr(CpuBackend, "own_memory", True)
    monkeypatch.setattr(CpuBackend, "allocatable_bytes", lambda self: 1 << 40)
    source = SOURCE.format(returned="torch.softmax(y, 1)", more="", inputs="").replace("(16, 8)", "(32, 8)")
    oracle = resources.oracle(Problem(id="halves", path=tmp_path / "halves.py", source=source), Device.CPU)
    case = oracle.case("full")
    assert (runs, oracle.exact_seconds(case) > 0) == ([32], True)
    assert all(0 < one.error_l2 < 1e-5 * one.norm for one in (*case.outputs.values(), *case.gradients.values()))
