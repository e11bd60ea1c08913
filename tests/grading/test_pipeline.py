"""What the pipeline prepares for the next submission while it grades one."""

from collections import Counter

from grader.api import Grader
from grader.executor.launcher import Role
from grader.grading import one_submission
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
