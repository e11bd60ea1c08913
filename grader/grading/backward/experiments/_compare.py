"""Compares the gradients of an experiment with the reference's."""

from __future__ import annotations

from collections.abc import Iterator

from grader.executor import JobResult
from grader.grading.backward.vjp import ask, product
from grader.grading.candidate import Candidate
from grader.grading.compare import tolerance
from grader.grading.oracle.case import Case


def first_wrong(
    candidate: Candidate,
    case: Case,
    result: JobResult,
    *,
    key: str = "a",
    skip: tuple[str, ...] = (),
    factor: float = 1.0,
) -> str | None:
    """Display name of the first operand whose gradient, times `factor`, is not the reference's."""
    name = next(wrong_operands(candidate, case, result, key=key, skip=skip, factor=factor), None)
    return None if name is None else case.operand_names[name]


def wrong_operands(
    candidate: Candidate,
    case: Case,
    result: JobResult,
    *,
    key: str = "a",
    skip: tuple[str, ...] = (),
    factor: float = 1.0,
) -> Iterator[str]:
    """Names of the operands whose gradients, times `factor`, are not the reference's."""
    actual = product(candidate, case, result, key)
    for name, expected in case.gradients.items():
        if name in skip or expected is None:
            continue
        gradient = actual.gradients[name]
        if gradient is None:
            if bool(expected.reference64.any()):
                yield name
        elif case.comparable("gradients", name) and tolerance.check(expected, gradient * factor).status == "failed":
            yield name


def plain_is_right(candidate: Candidate, case: Case) -> bool:
    """Whether the product for a contiguous grad_output is right, as it was last seen. Raises Stopped."""
    if case not in candidate.plain_right:
        result = candidate.attempt(ask(candidate, case), "backward", "backward with a contiguous grad_output")
        note_plain(candidate, case, result, "a")
    return candidate.plain_right[case]


def note_plain(candidate: Candidate, case: Case, result: JobResult, key: str) -> bool:
    """Remember whether this plain product is right."""
    right = result.failure is None and first_wrong(candidate, case, result, key=key) is None
    candidate.plain_right[case] = right
    return right
