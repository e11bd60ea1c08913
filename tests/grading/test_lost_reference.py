"""A reference whose process dies: the fault of the host, or of the problem if a fresh process dies in the same way."""

import pytest

from grader.errors import ReferenceLost
from grader.grading import pipeline
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Device, Status
from grader.verdict.precision import Precision
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


@pytest.mark.parametrize("warm", [False, True])
def test_a_reference_is_ended_after_another_was_lost_while_it_was_to_make_room(grader, monkeypatch, warm):
    resources, workers = grader.resources, []
    take = resources.launcher.take

    def noted(*arguments, **options):
        workers.append(take(*arguments, **options))
        return workers[-1]

    def lost():
        raise ReferenceLost("y.py: the reference was ended by SIGSEGV on cpu")

    wanted, other = (cases.problem(name) for name in ("scale_bias_relu", "square_weight"))
    resources.make_room()
    monkeypatch.setattr(resources.launcher, "take", noted)
    if warm:
        resources.oracle(wanted, Device.CPU)
    monkeypatch.setattr(resources.oracle(other, Device.CPU), "step_back", lost)
    with pytest.raises(ReferenceLost):
        resources.oracle(wanted, Device.CPU)
    worker = workers[0 if warm else 1]
    assert not worker.ended
    resources.drop_oracle(wanted, Device.CPU, Precision.FP32)
    assert worker.ended
    resources.make_room()
