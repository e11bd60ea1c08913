"""Decides whether a problem can tell a correct submission from one that computes nothing.

The reference alone is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from grader.grading.compare import tolerance
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import OTHER_DRAWS, is_float
from grader.grading.oracle.oracle import Oracle
from grader.grading.plan import ALWAYS_RANDOM, variants
from grader.verdict.value import Value


class Fault(Value):
    """Why a problem cannot be graded."""

    code: Literal["does_not_load", "does_not_run", "no_output", "no_float", "stochastic", "independent", "constant"]
    reason: str


class Soundness(Value):
    """Whether a problem can be graded, and how completely."""

    fault: Fault | None = None
    remark: str | None = None
    """What is not graded, and why."""


def judge_soundness(oracle: Oracle) -> Soundness:
    """Run the first variant on several draws with the same parameters.

    Raises ProblemError if the reference fails.
    """
    name = variants(oracle)[0]
    case, remark = oracle.case(name), None
    if not case.values_comparable:
        case, remark = oracle.case(name, training=False), "random in train(): values are compared in eval() only"
        if not case.values_comparable:
            return Soundness(fault=Fault(code="stochastic", reason=f"it {ALWAYS_RANDOM}"))
    if not case.wrt:
        remark = "there is nothing to differentiate: the forward alone is graded"
    return Soundness(fault=_fault(oracle, case), remark=remark)


def _fault(oracle: Oracle, case: Case) -> Fault | None:
    """Why the case cannot be graded, or None."""
    if not case.outputs:
        return Fault(code="no_output", reason="it returns no tensor")
    if not any(map(is_float, (*case.inputs, *case.state.values()))):
        return Fault(code="no_float", reason="there is no float input or parameter, so nothing can be differentiated")
    others = [questions.redrawn(oracle, case) for _ in range(OTHER_DRAWS)]
    if all(_passes(case, {name: _level(value) for name, value in other.items()}) for other in others):
        values = ", ".join(f"{float(_level(value).flatten()[0]):.6g}" for value in others[0].values() if value.numel())
        return Fault(code="constant", reason=f"outputs filled with a constant pass the tolerance: {values}")
    if all(_passes(case, other) for other in others):
        reason = "other inputs give the same outputs within the tolerance: a stored output would pass"
        return Fault(code="independent", reason=reason)
    return None


def _passes(case: Case, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether a submission that returned these outputs would pass."""
    return all(
        outputs[name].shape == expected.reference64.shape
        and tolerance.check(expected, outputs[name]).status == "passed"
        for name, expected in case.outputs.items()
    )


def _level(value: torch.Tensor) -> torch.Tensor:
    """The tensor filled with the constant that fits best: the mean, or the most frequent integer."""
    if not value.numel():
        return value
    middle = value.mean() if value.is_floating_point() or value.is_complex() else value.flatten().mode().values
    return middle.expand(value.shape)
