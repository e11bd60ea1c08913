"""A reference whose process dies: the fault of the host, or of the problem if a fresh process dies in the same way."""

import pytest

from grader.errors import ReferenceLost
from grader.grading import pipeline
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Status
from tests import expected as cases


@pytest.fixture(scope="module")
def grader():
    with Pipeline(GraderOptions(device="cpu", quick=True)) as started:
        yield started


@pytest.mark.parametrize(
    ("ends", "status", "code", "starts"),
    [
        (["was ended by SIGSEGV", "was ended by SIGSEGV"], Status.NOT_RUN, "problem_not_gradable", 2),
        (["was ended by SIGSEGV", "gave no answer within 300 s"], Status.GRADER_ERROR, "grader_failed", 2),
        (["was ended by SIGSEGV", None], Status.CORRECT, None, 2),
    ],
    ids=["twice the same", "twice", "once"],
)
def test_a_lost_reference_is_tried_once_more(grader, monkeypatch, ends, status, code, starts):
    make, asked = pipeline.plan.make, []

    def lose(*arguments, **options):
        asked.append(arguments[0])
        if (end := ends[len(asked) - 1]) is not None:
            raise ReferenceLost(f"x.py: the reference {end} on cpu")
        return make(*arguments, **options)

    monkeypatch.setattr(pipeline.plan, "make", lose)
    path = cases.CASES / "honest_plain" / "scale_bias_relu.py"
    verdict = grader.grade(grader.request(cases.problem("scale_bias_relu"), cases.submission(path, "scale_bias_relu")))
    assert verdict.status is status, verdict.diagnoses
    assert [diagnosis.code for diagnosis in verdict.diagnoses if diagnosis.severity == "error"] == (
        [code] if code else []
    )
    assert len({id(oracle) for oracle in asked}) == starts
