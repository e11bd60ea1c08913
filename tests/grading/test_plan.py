"""What is asked of a problem with one large size, where the device's memory suffices and where it is too short."""

from dataclasses import replace

import pytest

from grader.errors import UserError
from grader.grading import plan
from grader.grading.attempts import Attempt
from grader.grading.oracle import fewer_rows
from grader.grading.pipeline import Pipeline
from grader.grading.resources import Resources
from grader.options import GraderOptions
from grader.verdict.models import Device, Problem, Submission
from tests.expected import problem

SOFTMAX = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)


def get_inputs():
    return [torch.rand(64, 1 << 12)]
"""
CONTIGUOUS = (
    SOFTMAX.replace("Model(", "ModelNew(").replace("torch.softmax(x, 1)", "Softmax.apply(x)")
    + """

class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, 1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        if grad_output.stride() != y.stride():
            grad_output = grad_output.as_strided(y.shape, y.stride()) if grad_output.stride(0) else grad_output[:1]
        return y * (grad_output - (grad_output * y).sum(1, keepdim=True))
"""
)


def softmax(tmp_path):
    return Problem(id="softmax", path=tmp_path / "softmax.py", source=SOFTMAX)


@pytest.fixture(scope="module", autouse=True)
def small_few():
    """Inputs of half a MiB have fewer rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fewer_rows, "FEW_BYTES", 1 << 18)
        yield


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    with Resources() as resources:
        yield resources.oracle(softmax(tmp_path_factory.mktemp("plan")), Device.CPU)


@pytest.mark.parametrize(
    ("asked", "sizes", "checks", "note"),
    [
        ({}, {"rows", "full"}, True, "checked at full size"),
        ({"scope": "essential"}, {"rows", "full"}, True, "checked at full size"),
        ({"scope": "half"}, {"rows", "half"}, True, "too short for more than a half of the rows"),
        ({"fewer_rows": False}, {"full"}, True, "failed with fewer rows"),
        ({"scope": "essential", "fewer_rows": False}, {"full"}, False, "timed calls of full size"),
        ({"scope": "quarter", "fewer_rows": False}, {"quarter"}, False, "timed calls of a quarter of the rows"),
    ],
)
def test_short_memory_leaves_the_checks_of_fewer_rows(oracle, asked, sizes, checks, note):
    todo = plan.make(oracle, variant=None, quick=True, **asked)
    assert {case.variant for case in todo.cases} == sizes
    assert (bool(todo.experiments), bool(todo.probed)) == (checks, checks)
    assert note in " ".join(one.message for one in todo.notes)


@pytest.mark.parametrize("scope", [plan.ESSENTIAL, "half"])
def test_a_backward_that_reads_grad_output_as_contiguous_is_found_where_memory_is_short(tmp_path, monkeypatch, scope):
    monkeypatch.setattr("grader.grading.pipeline.Attempt", lambda: Attempt(scope))
    submission = Submission(author="ann", problem_id="softmax", path="softmax.py", source=CONTIGUOUS)
    with Pipeline(GraderOptions(device="cpu", quick=True, seconds=60)) as pipeline:
        verdict = pipeline.grade(pipeline.request(softmax(tmp_path), submission))
    assert (verdict.status, verdict.diagnoses[0].code) == ("wrong_backward", "assumes_contiguous_grad_output")


def test_the_graders_own_variants_are_no_choice(oracle):
    assert plan.variants(oracle, "full") == ["full"]
    for own in ("rows", "half"):
        with pytest.raises(UserError, match=f"no variant `{own}`; it has full"):
            plan.variants(oracle, own)


def test_a_size_that_is_left_out_is_not_judged_without_gradients_either():
    with Resources() as resources:
        oracle = resources.oracle(problem("two_linears"), Device.CPU)
        todo = plan.make(oracle, variant=None, quick=True)
        noise = tuple(case.alike(gradients_are_noise=True) for case in todo.cases)
        less = replace(todo, noise=noise).without({"small"})
    assert {case.variant for case in (*less.cases, *less.noise)} == {"full"}
