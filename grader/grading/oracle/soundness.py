"""Decides whether a problem can tell a correct submission from one that computes nothing.

The reference alone is run.
"""

from __future__ import annotations

from typing import Literal

from grader.grading.oracle.case import Case
from grader.grading.oracle.noise import is_float
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.trivial import trivial_outputs
from grader.grading.plan import ALWAYS_RANDOM, variants
from grader.verdict.value import Value


class Fault(Value):
    """The reason why a problem cannot be graded."""

    code: Literal["does_not_load", "does_not_run", "no_output", "no_float", "stochastic"]
    reason: str


class Soundness(Value):
    """Whether a problem can be graded, and how completely."""

    fault: Fault | None = None
    remark: str | None = None
    """What is not graded, and why; or what passes without computing anything."""


def judge_soundness(oracle: Oracle) -> Soundness:
    """Run the first variant on several draws with the same parameters.

    Raises ProblemError if the reference fails.
    """
    name = variants(oracle)[0]
    case, remarks = oracle.case(name), list[str]()
    if not case.values_comparable:
        case = oracle.case(name, training=False)
        remarks.append("random in train(): values are compared in eval() only")
        if not case.values_comparable:
            return Soundness(fault=Fault(code="stochastic", reason=f"it {ALWAYS_RANDOM}"))
    fault = _fault(case)
    if not case.wrt:
        remarks.append("there is nothing to differentiate: the forward alone is graded")
    trivial = trivial_outputs(oracle, case) if fault is None else None
    if trivial is not None:
        remarks.append(trivial)
    return Soundness(fault=fault, remark="; ".join(remarks) or None)


def _fault(case: Case) -> Fault | None:
    """Why the case cannot be graded, or None."""
    if not case.outputs:
        return Fault(code="no_output", reason="it returns no tensor")
    if not any(map(is_float, (*case.inputs, *case.state.values()))):
        return Fault(code="no_float", reason="there is no float input or parameter, so nothing can be differentiated")
    return None
