"""A reference that ran out of memory in a check has neither passed it nor failed it."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from grader.errors import ReferenceOutOfMemory
from grader.grading.oracle.control import reference_passes
from grader.grading.outcome import Stopped, diagnose
from grader.verdict.models import Device

WRONG = diagnose("grad_wrong", "it is wrong", remedy="mend it", severity="error")


def passes(*tries):
    """Whether the reference passes a check that ran out of memory, found a fault or passed in these tries."""
    left, released = list(tries), []

    def check(reference):
        found = left.pop(0)
        reference.ran_out_of_memory = found in ("short", "ended")
        if found in ("ended", "crashed"):
            raise Stopped(WRONG)
        return WRONG if found == "wrong" else None

    oracle = SimpleNamespace(
        device=Device.CPU,
        problem=SimpleNamespace(path="/problems/attention.py"),
        lent=lambda: nullcontext(SimpleNamespace()),
        remember=lambda key, run: run(),
    )
    candidate = SimpleNamespace(release=released.append)
    return reference_passes(candidate, oracle, "a check", check), len(released)


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
