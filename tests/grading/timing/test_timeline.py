"""Calls on the referee's own GPU timeline."""

from pathlib import Path

import pytest

from grader.catalog.problems import find_problems
from grader.executor.gpu_timeline import RELEASE_SECONDS
from grader.grading import plan
from grader.grading.pipeline import Pipeline
from grader.grading.timing.stopping import RoundLimits
from grader.options import GraderOptions
from grader.verdict.models import Problem, Submission
from tests.expected import CASES

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

WAITS = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        y = x * self.scale
        {wait}
        return y
"""

MANY = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.randn(1)) for _ in range(count))

    def forward(self, x):
        for scale in self.scales:
            x = x + scale
        return x


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [1100]
"""


@pytest.fixture(scope="module")
def grader():
    with pytest.MonkeyPatch.context() as patch, Pipeline(GraderOptions(device="cuda", quick=True)) as made:
        patch.setattr(plan, "QUICK", RoundLimits(min_rounds=6, max_rounds=6, seconds=60.0))
        yield made


def grade(grader, wait):
    problem = find_problems([CASES / "problems"]).problem("wide_scale")
    submission = Submission(author="ann", problem_id=problem.id, path="it.py", source=WAITS.format(wait=wait))
    return grader.grade(grader.request(problem, submission))


@pytest.mark.parametrize("wait", ["pass", "y.sum()"])
def test_a_call_that_can_be_queued_is_timed_without_its_launches(grader, wait):
    verdict = grade(grader, wait)
    assert verdict.status == "correct"
    assert "launches_timed" not in [told.code for told in verdict.diagnoses]
    assert verdict.timing.forward.reference_ms < 0.02


@pytest.mark.parametrize("wait", ["torch.cuda.synchronize()", "y.sum().item()"])
def test_one_that_waits_for_the_device_is_let_in_and_both_sides_are_timed_with_their_launches(grader, wait):
    verdict = grade(grader, wait)
    assert verdict.status == "correct"
    assert "launches_timed" in [told.code for told in verdict.diagnoses]
    assert "clock_disagreement" not in [told.code for told in verdict.diagnoses]
    assert 0.01 < verdict.timing.forward.reference_ms < RELEASE_SECONDS * 1e3 / 100, "launches, and not the wait"


def test_more_launches_than_a_gpu_queues_hold_nobody_up(grader):
    """Neither side can queue its call behind a gate: the workers are let in."""
    problem = Problem(id="many_scales", path=Path("many_scales.py"), source=MANY)
    source = MANY.replace("class Model(", "class ModelNew(")
    submission = Submission(author="ann", problem_id=problem.id, path="it.py", source=source)
    verdict = grader.grade(grader.request(problem, submission))
    assert verdict.status == "correct"
    assert "launches_timed" in [told.code for told in verdict.diagnoses]
