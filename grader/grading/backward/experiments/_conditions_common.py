"""What the experiments run on, and whether an answer is right."""

from __future__ import annotations

from dataclasses import dataclass

from grader.executor import JobResult
from grader.grading.backward.vjp import ask, product
from grader.grading.candidate import Candidate
from grader.grading.compare import tolerance
from grader.grading.oracle.case import Case


@dataclass(frozen=True)
class Cases:
    """What the experiments run on: the same sizes, other inputs and parameters."""

    first: Case
    second: Case
    constant: Case
    """Its grad_output is constant along one dimension, so that it can be given expanded."""
    keeps_outputs: bool
    """The reference's next forward leaves alone what the one before returned."""


def first_wrong(
    candidate: Candidate,
    case: Case,
    finding: JobResult,
    *,
    key: str = "a",
    skip: tuple[str, ...] = (),
    factor: float = 1.0,
) -> str | None:
    """Display name of the first operand whose gradient, times `factor`, is not the reference's."""
    found = product(candidate, case, finding, key)
    for name, expected in case.gradients.items():
        if name in skip or expected is None:
            continue
        gradient = found.gradients[name]
        if gradient is None:
            if bool(expected.reference64.any()):
                return case.operand_names[name]
        elif case.comparable("gradients", name) and tolerance.check(expected, gradient * factor).status == "failed":
            return case.operand_names[name]
    return None


def plain_is_right(candidate: Candidate, case: Case) -> bool:
    """The product for a contiguous grad_output, asked once more."""
    finding = candidate.attempt(ask(candidate, case), "backward", "backward with a contiguous grad_output")
    return finding.failure is None and first_wrong(candidate, case, finding) is None
