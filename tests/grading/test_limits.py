"""Limits that a submission runs into are named as what they are, and no wait is longer than its job's limit."""

import time
from dataclasses import replace

import pytest

from grader.catalog.files import MAX_SOURCE_BYTES
from grader.executor import launcher
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Status, TimeLimits
from tests import expected as cases

PROBLEM = "scale_bias_relu"
HONEST = cases.submission(cases.CASES / "honest_plain" / f"{PROBLEM}.py", PROBLEM)
LIMITS = TimeLimits(build=30, construction=20, call=4)
TAKE_ALL = """
HELD = []
try:
    while True:
        HELD.append({what})
except OSError:
    pass
"""
ONE_BYTE_A_SECOND = """
import time
from grader import protocol
from grader.worker import channel
def send(self, evidence):
    for byte in protocol.encode(evidence):
        self._socket.sendall(bytes([byte]))
        time.sleep(1)
channel.Channel.send = send
"""
SLEEPS_WITHOUT_INPUT_GRAD = """
import time
import torch
from torch import nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.relu(x * scale + bias)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        if not all(ctx.needs_input_grad):
            time.sleep(60)
        grad = grad_output * (y > 0)
        return grad * scale, (grad * x).sum((0, 1)), grad.sum((0, 1))
"""


@pytest.fixture(scope="module")
def grader():
    with Pipeline(GraderOptions(device="cpu", quick=True, seconds=cases.AMPLE_SECONDS, limits=LIMITS)) as started:
        yield started


def grade(grader, source):
    return grader.grade(grader.request(cases.problem(PROBLEM), HONEST.model_copy(update={"source": source})))


@pytest.fixture
def little_memory(monkeypatch):
    """A grader whose workers may use a gigabyte each; the kernel takes seconds to reach that limit."""
    little = replace(launcher.limits(), memory_bytes=1 << 30)
    monkeypatch.setattr(launcher, "limits", lambda: little)
    patient = LIMITS.model_copy(update={"call": 30})
    with Pipeline(GraderOptions(device="cpu", quick=True, limits=patient)) as started:
        yield started


TAKES_MEMORY = "        torch.ones(1 << 30).sum()\n"
FORWARD = "    def forward(self, x):\n"


def test_memory_that_the_submission_takes_is_its_own(little_memory):
    verdict = grade(little_memory, HONEST.source.replace(FORWARD, FORWARD + TAKES_MEMORY))
    assert verdict.status is Status.OUT_OF_MEMORY, verdict.diagnoses


def test_memory_that_the_reference_takes_is_not_the_submissions(little_memory):
    problem = cases.problem(PROBLEM)
    large = problem.model_copy(update={"source": problem.source.replace(FORWARD, FORWARD + TAKES_MEMORY)})
    assert large.source != problem.source
    verdict = little_memory.grade(little_memory.request(large, HONEST))
    assert verdict.status is Status.NOT_RUN, verdict.diagnoses
    assert "does not fit into this device's memory" in verdict.diagnoses[0].message


@pytest.mark.parametrize("what", ["open('/dev/null')", "os.pipe()", "socket.socketpair()"])
def test_exhausted_descriptors_are_no_lack_of_memory(grader, what):
    verdict = grade(grader, "import os, socket\n" + TAKE_ALL.format(what=what) + HONEST.source)
    assert verdict.status is Status.RUNTIME_ERROR
    assert "Too many open files" in verdict.diagnoses[0].message


def test_a_limit_that_a_submission_sets_is_named(grader):
    source = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))\n" + HONEST.source
    verdict = grade(grader, source)
    assert verdict.status is Status.RUNTIME_ERROR
    assert "has set RLIMIT_NOFILE to 6)" in verdict.diagnoses[0].message


@pytest.mark.alone
def test_an_answer_of_one_byte_a_second_is_not_waited_for(grader):
    forward = "    def forward(self, x):\n"
    installed = ONE_BYTE_A_SECOND.strip().replace("\n", "\n        ")
    started = time.monotonic()
    verdict = grade(grader, HONEST.source.replace(forward, f"{forward}        {installed}\n"))
    assert verdict.status is Status.TIMEOUT
    assert time.monotonic() - started < 3 * LIMITS.call


def test_a_timeout_in_an_experiment_is_a_timeout(grader):
    model = HONEST.source[HONEST.source.index("class ModelNew") :]
    applied = model.replace("torch.relu(x * self.scale + self.bias)", "Scaled.apply(x, self.scale, self.bias)")
    verdict = grade(grader, SLEEPS_WITHOUT_INPUT_GRAD + "\n\n" + applied)
    assert verdict.status is Status.TIMEOUT, verdict.diagnoses
    assert "gave no answer within 4 s (backward with some operands frozen" in verdict.diagnoses[0].message


def test_a_source_that_is_too_large_is_refused_however_it_comes(grader):
    source = "#" * MAX_SOURCE_BYTES + HONEST.source
    request = grader.request(cases.problem(PROBLEM), HONEST.model_copy(update={"source": source}))
    assert request.submission.source == ""
    verdict = grader.grade(request)
    assert verdict.status is Status.INVALID_SUBMISSION
    assert f"at most {MAX_SOURCE_BYTES} are read" in verdict.diagnoses[0].message
