"""A mistake that an experiment has found stays named when the submission ends on the way."""

from types import SimpleNamespace

import pytest

from grader.grading.backward import run_experiments as module
from grader.grading.backward.experiments import experiments
from grader.grading.backward.run_experiments import run_experiments
from grader.grading.messages import diagnose
from grader.grading.stopped import Stopped

CONTIGUOUS = next(one for one in experiments("post-check", "train") if one.code == "assumes_contiguous_grad_output")


def found_by(answers, monkeypatch):
    """The diagnoses of an experiment with these answers, one after another."""
    turns = iter(answers)

    def run(*_):
        answer = next(turns)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "_reference_passes", lambda *_: True)
    experiment = SimpleNamespace(
        code=CONTIGUOUS.code, question=CONTIGUOUS.question, remedy=CONTIGUOUS.remedy, lasting=False, run=run
    )
    first = SimpleNamespace(values_comparable=True)
    return run_experiments(SimpleNamespace(), SimpleNamespace(), SimpleNamespace(first=first), [experiment])


def wrong():
    return diagnose(CONTIGUOUS.code, "it is wrong for a transposed one", severity="error")


def test_a_crash_in_its_repeat_keeps_what_it_found(monkeypatch):
    crash = Stopped(diagnose("crashed", "the process was ended by SIGSEGV"))
    (diagnosis,) = found_by([wrong(), crash], monkeypatch)
    assert (diagnosis.code, diagnosis.severity) == (CONTIGUOUS.code, "error")
    assert "SIGSEGV" in diagnosis.message


def test_a_timeout_in_its_repeat_may_have_another_cause(monkeypatch):
    with pytest.raises(Stopped):
        found_by([wrong(), Stopped(diagnose("timed_out", "it gave no answer"))], monkeypatch)
