"""Processes that something outside ends: tried again in fresh ones, and a verdict only if the submission did it."""

import os
import signal
from dataclasses import replace

import pytest

from grader.errors import ReferenceKilled
from grader.executor import Killer, WorkerClient
from grader.executor.job_log import compressed_kinds
from grader.grading.attempts import Attempt, diagnosis_of, next_attempt
from grader.grading.messages import diagnose
from grader.grading.pipeline import Pipeline
from grader.grading.record import Record
from grader.grading.stopped import Kill, Stopped, killed_child
from grader.options import GraderOptions
from grader.verdict.models import Status
from tests import expected as cases

PROBLEM = "scale_bias_relu"
HONEST = cases.submission(cases.CASES / "honest_plain" / f"{PROBLEM}.py", PROBLEM)
FORWARD = "    def forward(self, x):\n"


@pytest.fixture(scope="module")
def grader():
    with Pipeline(GraderOptions(device="cpu", quick=True)) as started:
        yield started


def grade(grader, source=HONEST.source):
    return grader.grade(grader.request(cases.problem(PROBLEM), HONEST.model_copy(update={"source": source})))


def in_forward(code):
    assert HONEST.source.count(FORWARD) == 1
    return "import os, random, signal\n" + HONEST.source.replace(FORWARD, f"{FORWARD}        {code}\n")


@pytest.fixture
def kill(monkeypatch):
    """`kill(role, numbers)` ends the worker from outside before its jobs with these numbers, counted over attempts."""
    run, counts, planned = WorkerClient.run, {}, {}

    def counted(self, steps, *arguments, **options):
        role = str(self.options.role)
        counts[role] = counts.get(role, 0) + 1
        if counts[role] in planned.get(role, ()):
            self.wait_ready()
            ended.append(compressed_kinds(steps))
            os.kill(max(self._process.roots - {self._process.pid}), signal.SIGKILL)
        return run(self, steps, *arguments, **options)

    ended = []
    monkeypatch.setattr(WorkerClient, "run", counted)
    return lambda role, numbers: (planned.update({role: numbers}), ended)[1]


@pytest.mark.parametrize(
    ("role", "number"), [("run", 1), ("run", 5), ("run", 20), ("run", 60), ("reference", 4), ("reference", 40)]
)
def test_a_worker_killed_once_changes_no_verdict(grader, kill, role, number):
    if role == "reference":
        grader.resources.make_room()
    ended = kill(role, {number})
    verdict = grade(grader)
    assert len(ended) == 1
    assert verdict.status is Status.CORRECT, verdict.diagnoses


def test_a_candidate_killed_at_several_steps_is_an_error_of_the_grader(grader, kill):
    ended = kill("run", {5, 30, 90})
    verdict = grade(grader)
    assert len(ended) == 3
    assert verdict.status is Status.GRADER_ERROR
    assert "a process of the submission was killed" in verdict.diagnoses[0].message


def test_a_reference_killed_twice_is_an_error_of_the_grader(grader, kill):
    grader.resources.make_room()
    ended = kill("reference", {2, 4})
    verdict = grade(grader)
    assert len(ended) == 2
    assert verdict.status is Status.GRADER_ERROR
    assert "ReferenceKilled" in verdict.diagnoses[0].message


@pytest.mark.parametrize(
    "code",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.killpg(0, signal.SIGKILL)",
        "os.kill(-1, signal.SIGKILL)",
        "signal.pthread_kill(__import__('threading').get_ident(), signal.SIGKILL)",
        "random.SystemRandom().random() < 0.2 and os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_a_submission_that_kills_itself_crashes_at_once(grader, code):
    verdict = grade(grader, in_forward(code))
    assert verdict.status is Status.CRASHED
    assert "a signal to itself" in verdict.diagnoses[0].message


def test_a_submission_that_ends_as_if_killed_crashes_when_it_does_so_again(grader):
    verdict = grade(grader, in_forward("os._exit(137)"))
    assert verdict.status is Status.CRASHED
    assert "was ended by SIGKILL (forward" in verdict.diagnoses[0].message


def test_a_submission_may_kill_its_children(grader):
    code = "import subprocess; child = subprocess.Popen(['sleep', '9']); child.kill(); assert child.wait() == -9"
    assert grade(grader, in_forward(code)).status is Status.CORRECT


# ---------------------------------------------------------------------------------------------- what follows a kill

KILLED = Kill(Killer.UNKNOWN, "forward of variant full", "5: Forward")


def stopped(kill):
    return Stopped(diagnose("crashed", "it was ended by SIGKILL", remedy="look", stage="load"), kill)


@pytest.mark.parametrize(
    ("before", "kill", "others_lost", "code"),
    [
        ((KILLED,), KILLED, False, None),
        ((KILLED, KILLED), KILLED, False, "crashed"),
        ((KILLED, KILLED), KILLED, True, "grader_failed"),
        ((KILLED,), replace(KILLED, job="6: Forward"), False, None),
        ((KILLED, replace(KILLED, job="6: Forward")), KILLED, False, "grader_failed"),
        ((KILLED, replace(KILLED, job="6: Forward")), replace(KILLED, job="7: Forward"), False, "grader_failed"),
        ((), KILLED, False, None),
        ((replace(KILLED, killer=Killer.HOST),), replace(KILLED, killer=Killer.HOST), False, None),
        ((replace(KILLED, killer=Killer.HOST),) * 2, replace(KILLED, killer=Killer.HOST), False, "grader_failed"),
    ],
)
def test_only_a_repetition_at_the_same_step_is_the_submissions_own(before, kill, others_lost, code):
    attempt, error = Attempt(kills_before=before), stopped(kill)
    following = next_attempt(attempt, Record(None), error)
    if code is None:
        assert following == replace(attempt, kills_before=(*before, kill))
    else:
        assert following is None
        assert diagnosis_of(error, attempt, others_lost=others_lost).code == code


def test_a_killed_reference_is_tried_once_more_and_is_never_the_problems_fault():
    error = ReferenceKilled("x.py: the reference was ended by SIGKILL on cpu")
    again = next_attempt(Attempt(), Record(None), error)
    assert again is not None
    assert next_attempt(again, Record(None), error) is None
    assert diagnosis_of(error, again).code == "grader_failed"


@pytest.mark.parametrize(
    ("text", "killed"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.", True),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", True),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]", True),
        ("Command '['nvcc']' died with <Signals.SIGKILL: 9>.", True),
        ("main.cpp:3:1: error: expected ';' before '}' token", False),
    ],
)
def test_a_killed_compiler_is_recognised(text, killed):
    assert (killed_child(text, "compiling") is not None) == killed
