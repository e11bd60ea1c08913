"""What the pipeline prepares for the next submission while it grades one."""

import contextlib
from collections import Counter

import pytest

from grader.api import Grader
from grader.executor.launcher import Role
from grader.grading import one_submission
from grader.grading.attempts import Attempt
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Device, Status
from tests import expected as cases


def test_the_next_reference_has_started_before_this_submission_is_timed(monkeypatch, tmp_path):
    """Its start would otherwise be waited for, or disturb the measurement."""
    spares = []
    judge = one_submission.judge_timing

    def judge_timing(candidate, oracle, *arguments, **options):
        spares.append(Counter(role for role, device in launcher._spares for _ in launcher._spares[role, device]))
        return judge(candidate, oracle, *arguments, **options)

    monkeypatch.setattr(one_submission, "judge_timing", judge_timing)
    folder = cases.CASES / "problems"
    work = [
        (folder / f"{name}.py", (folder / f"{name}.py").read_text().replace("class Model(", "class ModelNew("))
        for name in ("scale_bias_relu", "square_weight")
    ]
    with Grader(device=Device.CPU.value, quick=True, build_cache=tmp_path) as grader:
        launcher = grader._pipeline.resources.launcher
        verdicts = list(grader.grade_many(work))
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * 2
    assert spares == [Counter({Role.RUN: 1, Role.REFERENCE: 1}), Counter()]


@pytest.mark.parametrize(("attempt", "kept"), [(Attempt(), 1), (Attempt(sparing=True), 0), (Attempt("half"), 0)])
def test_what_a_reference_answered_with_less_memory_is_not_kept_for_others(attempt, kept):
    """Without a float64 run it answers more loosely, and the next submission to the problem would be asked less."""
    problem = cases.problem("scale_bias_relu")
    submission = cases.submission(problem.path, problem.id)
    source = submission.source.replace("class Model(", "class ModelNew(")
    with contextlib.closing(Pipeline(GraderOptions(device="cpu", quick=True))) as pipeline:
        request = pipeline.request(problem, submission.model_copy(update={"source": source}))
        record, following = pipeline._grade(request, attempt, None, 0)
        assert (record.status, following) == (Status.CORRECT, None)
        assert len(pipeline.resources._oracles) == kept
