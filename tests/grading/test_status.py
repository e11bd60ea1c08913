"""One place decides a status: every diagnosis gives one, or none, and the most decisive counts."""

import pytest

from grader.grading.messages import diagnose
from grader.grading.status import PRECEDENCE, stage_status, status_of
from grader.verdict.codes import CODES
from grader.verdict.models import Status
from grader.verdict.stages import StageStatus


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_has_a_status(code):
    status = status_of([diagnose(code, "it is wrong")])
    assert (status is Status.CORRECT) == (CODES[code].severity != "error" and CODES[code].status is None)


def test_nothing_wrong_is_correct():
    assert status_of([]) is Status.CORRECT
    assert status_of([diagnose("nondeterministic_grad", "it varies", severity="warning")]) is Status.CORRECT


def test_an_error_of_a_forward_code_in_the_backward_is_the_backwards():
    assert status_of([diagnose("output_wrong", "it is wrong", stage="backward")]) is Status.WRONG_BACKWARD


def test_a_missing_gradient_counts_before_a_wrong_one():
    found = [diagnose("grad_wrong", "it is wrong"), diagnose("input_grad_none", "it is None")]
    assert status_of(found) is Status.MISSING_BACKWARD
    assert stage_status(found) is StageStatus.FAILED


def test_what_ended_the_grading_counts_before_what_it_found():
    found = [diagnose("param_grad_none", "it is None"), diagnose("crashed", "it died", stage="timing")]
    assert status_of(found) is Status.CRASHED


def test_a_stream_that_made_a_timed_output_wrong_does_not_hide_it():
    found = [diagnose("wrong_stream", "it is wrong", severity="error"), diagnose("timed_output_wrong", "it is wrong")]
    assert status_of(found) is Status.WRONG_OUTPUT


def test_a_device_that_is_missing_decides_although_it_is_information():
    assert status_of([diagnose("needs_cuda", "there is none")]) is Status.NOT_RUN


def test_every_status_but_correct_has_its_place():
    assert set(PRECEDENCE) == set(Status) - {Status.CORRECT}
