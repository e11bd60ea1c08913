"""A reference that ran out of memory in a check has neither passed it nor failed it."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from grader.errors import ReferenceOutOfMemory
from grader.grading.control import reference_passes, with_memory
from grader.grading.messages import diagnose
from grader.grading.oracle.case import Answers
from grader.grading.stopped import Stopped
from grader.verdict.models import Device, TimeLimits

WRONG = diagnose("grad_wrong", "it is wrong", remedy="mend it", severity="error")


def passes(*tries):
    """Whether the reference passes a check that ran out of memory, found a fault or passed in these tries."""
    left, released = list(tries), []

    def check(reference):
        assert reference.limits is candidate.limits
        found = left.pop(0)
        reference.ran_out_of_memory = found in ("short", "ended")
        if found in ("ended", "crashed"):
            raise Stopped(WRONG)
        return WRONG if found == "wrong" else None

    oracle = SimpleNamespace(
        device=Device.CPU,
        problem=SimpleNamespace(path="/problems/attention.py"),
        models=SimpleNamespace(lent=lambda: nullcontext(SimpleNamespace())),
    )
    candidate = SimpleNamespace(release=released.append, limits=TimeLimits(call=7.0))
    case = SimpleNamespace(training=True, answers=Answers())
    return reference_passes(candidate, oracle, case, "a check", check), len(released)


def test_it_is_asked_again_with_the_memory_of_the_candidate():
    assert passes("right") == (True, 0)
    assert passes("wrong") == (False, 0)
    assert passes("short", "right") == (True, 1)
    assert passes("short", "wrong") == (False, 1)
    assert passes("ended", "right") == (True, 1)
    assert passes("crashed") == (False, 0)


def test_what_it_cannot_answer_is_held_against_nobody():
    with pytest.raises(ReferenceOutOfMemory):
        passes("short", "short")


def checked(*tries):
    """The diagnosis of a check in which memory ran out, or which found a fault or none, and what was released."""
    left, released = list(tries), []

    def check():
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        candidate.ran_out_of_memory = found == "short"
        return None if found == "right" else WRONG

    candidate = SimpleNamespace(release=released.append)
    oracle = SimpleNamespace(release=lambda: released.append("reference"))
    return with_memory(candidate, oracle, check, "backward"), released


@pytest.mark.parametrize(
    "short", ["short", torch.OutOfMemoryError("CUDA out of memory"), ReferenceOutOfMemory("short")]
)
def test_a_check_is_made_again_with_the_memory_that_nobody_needs(short):
    assert checked(short, "right") == (None, ["reference", "backward"])
    assert checked(short, "wrong") == (WRONG, ["reference", "backward"])
    assert checked("wrong") == (WRONG, [])
    with pytest.raises(ZeroDivisionError):
        checked(ZeroDivisionError(), "right")
