"""Another attempt asks less where the grader lacks memory, and never so that a submission's own fault passes."""

from pathlib import Path

import pytest

from grader.errors import ReferenceLost, ReferenceOutOfMemory
from grader.grading.attempts import Attempt, next_attempt
from grader.grading.outcome import Stopped, diagnose
from grader.grading.pipeline import Pipeline
from grader.grading.plan import ESSENTIAL, EVERY_SIZE, FULL_SIZE
from grader.grading.record import Record
from grader.options import GraderOptions
from grader.verdict.models import Problem, Submission

BACKWARD_RUNS_OUT = """
import torch
from torch import nn


class Greedy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        raise torch.OutOfMemoryError("CUDA out of memory")


class Model(nn.Module):
    def forward(self, x):
        return Greedy.apply(x)


def get_inputs():
    return [torch.rand(8, 8)]
"""
FORWARD_ONLY = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * 2).detach()
"""


def own_shortage():
    return Stopped(diagnose("out_of_memory", "forward: CUDA out of memory", remedy="use less", stage="forward"))


def record(large=True):
    return Record(None, large=large)


@pytest.mark.parametrize(
    ("scope", "following"),
    [(EVERY_SIZE, ESSENTIAL), (FULL_SIZE, ESSENTIAL), (ESSENTIAL, "half"), ("half", "quarter"), ("quarter", None)],
)
def test_a_shortage_in_the_reference_asks_less_step_by_step(scope, following):
    attempt = next_attempt(Attempt(scope), record(), ReferenceOutOfMemory("short"))
    assert (attempt and attempt.scope) == following


@pytest.mark.parametrize(
    ("scope", "following"),
    [(EVERY_SIZE, ESSENTIAL), (FULL_SIZE, ESSENTIAL), (ESSENTIAL, None), ("half", None), ("quarter", None)],
)
def test_a_shortage_in_the_submission_is_its_own_once_the_grader_holds_little(scope, following):
    attempt = next_attempt(Attempt(scope), record(), own_shortage())
    assert (attempt and attempt.scope) == following


def test_a_submission_for_a_small_problem_that_says_it_is_short_is_asked_no_less():
    assert next_attempt(Attempt(), record(large=False), own_shortage()) is None


@pytest.mark.parametrize(
    ("scope", "following"),
    [(EVERY_SIZE, ESSENTIAL), (ESSENTIAL, "half"), ("half", "quarter"), ("quarter", None)],
)
def test_a_submission_that_had_less_memory_than_the_reference_takes_is_graded_on_fewer_rows(scope, following):
    short = record()
    short.memory_withheld = True
    attempt = next_attempt(Attempt(scope), short, own_shortage())
    assert (attempt and attempt.scope) == following


def test_a_lost_reference_is_started_again_once():
    again = next_attempt(Attempt(), record(), ReferenceLost("was killed"))
    assert again == Attempt(EVERY_SIZE, lost_before="was killed")
    assert next_attempt(again, record(), ReferenceLost("was killed")) is None


def test_a_backward_for_which_memory_is_short_is_not_left_out():
    """Else a submission without a backward would be correct."""
    problem = Problem(id="greedy", path=Path("greedy.py"), source=BACKWARD_RUNS_OUT)
    submission = Submission(author="ann", problem_id="greedy", path="greedy.py", source=FORWARD_ONLY)
    with Pipeline(GraderOptions(device="cpu", quick=True)) as pipeline:
        verdict = pipeline.grade(pipeline.request(problem, submission))
    assert verdict.status == "not_run", verdict.diagnoses
    assert "memory" in verdict.diagnoses[0].message


def test_float64_for_which_memory_is_short_does_not_widen_the_tolerance():
    """Else the fallback tolerance for references without float64 would hold."""
    source = BACKWARD_RUNS_OUT.replace("return x * 2", "return x * 2 if x.dtype == torch.float32 else _short()")
    source += "\n\ndef _short():\n    raise torch.OutOfMemoryError('CUDA out of memory')\n"
    source = source.replace('raise torch.OutOfMemoryError("CUDA out of memory")', "return grad_output * 2")
    problem = Problem(id="short64", path=Path("short64.py"), source=source)
    submission = Submission(
        author="ann", problem_id="short64", path="short64.py", source=source.replace("Model(", "ModelNew(")
    )
    with Pipeline(GraderOptions(device="cpu", quick=True)) as pipeline:
        verdict = pipeline.grade(pipeline.request(problem, submission))
    assert verdict.status == "not_run", verdict.diagnoses
