"""Asks for outputs on inputs unlike the drawn ones, which the reference takes.

What get_inputs draws is the contract, so a kernel that is wrong elsewhere gets a warning. A kernel that is wrong on
small inputs alone is rejected: it does not add the reference's epsilon, or adds it in another place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import torch

from grader import protocol as p
from grader.errors import ReferenceLost, ReferenceOutOfMemory
from grader.grading.candidate.candidate import Candidate
from grader.grading.compare import nonsmooth, tolerance
from grader.grading.compare.expected import Expected
from grader.grading.control import reference_passes
from grader.grading.forward.one_forward import add_forward
from grader.grading.messages import diagnose, first_line
from grader.grading.oracle.case import Case, first_comparable
from grader.grading.oracle.code_changes import CODE_CHANGES
from grader.grading.oracle.input_changes import (
    EQUAL,
    NEAR_RANGE,
    SCALED_FAR,
    SHIFTED_FAR,
    SMALLER,
)
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.other_inputs import EPSILON_SHOWS, SPECIALS, OtherInputs, other_inputs
from grader.grading.oracle.values import is_float, values_of
from grader.grading.stopped import Stopped
from grader.verdict.models import Diagnosis, StageName

CHANGES = "changes"
"""The key of a diagnosis's detail with the changes of the inputs."""
ERROR = "relative_error"
"""The key of a diagnosis's detail with the relative RMS error for small inputs."""


class WrongTensor(NamedTuple):
    """A text on what is wrong with a tensor, and its relative RMS error if it is finite."""

    text: str
    error: float | None = None
    lost: bool = False
    """Large elements of the reference are zero here, which no epsilon makes them."""


def judge_other_inputs(candidate: Candidate, oracle: Oracle, cases: Sequence[Case]) -> Diagnosis | None:
    """A fault on inputs unlike those of the first comparable case: an error or a warning."""
    case = first_comparable(cases)
    if case is None or case.released:
        return None
    try:
        others = other_inputs(oracle, case).cases
    except (ReferenceLost, ReferenceOutOfMemory):  # by inputs that are not the problem's
        return None

    def judge(one: Candidate) -> Diagnosis | None:
        return narrow_inputs(_wrong_outputs(one, others), others, case)

    diagnosis = judge(candidate)
    if diagnosis is None or not reference_passes(candidate, oracle, case, "other inputs", judge, ("error", "warning")):
        return None
    return diagnosis


def _remedy(wrong: Collection[str], stage: StageName) -> str:
    """What to do about inputs of these changes."""
    if set(wrong) == {SHIFTED_FAR}:
        return "subtract before squaring: what is left of large squares has lost its digits"
    return "handle them too" if stage == "forward" else "handle them in the backward too"


def wrong_changes(diagnosis: Diagnosis | None) -> Sequence[str]:
    """The changes of the inputs for which a diagnosis finds something wrong."""
    return () if diagnosis is None else cast(list[str], diagnosis.detail.get(CHANGES, ()))


def narrow_inputs(
    wrong: Mapping[str, WrongTensor], others: Sequence[OtherInputs], case: Case, *, stage: StageName = "forward"
) -> Diagnosis | None:
    """The diagnosis for faults by change: an error for a wrong epsilon, else a warning, or None.

    An epsilon matters where all is small, and nowhere else. What is wrong for somewhat smaller inputs as well has
    another cause; if these were whole numbers, it relies on that.
    """
    if SMALLER in wrong and _scales_whole_numbers(others, case):
        wrong = {change: one for change, one in wrong.items() if change not in EPSILON_SHOWS | {SCALED_FAR, SMALLER}}
    if not wrong:
        return None
    small = next((change for change in wrong if change in EPSILON_SHOWS), None)
    larger = {other.change for other in others} - EPSILON_SHOWS - (SPECIALS - {NEAR_RANGE})
    larger -= {EQUAL, SCALED_FAR, *CODE_CHANGES}
    if (
        small is not None
        and larger
        and not wrong[small].lost
        and not any(_weighs(wrong[change], wrong[small]) for change in larger & set(wrong))
    ):
        what = f"for {small}, and not for larger or shifted ones, {wrong[small].text}"
        remedy = "add the reference's epsilon, of the same size and in the same place, or none if it has none"
        code = "output_wrong"
        if stage == "backward":
            code, remedy = "grad_wrong", f"{remedy}, in the backward too"
        detail = {ERROR: wrong[small].error, CHANGES: list(wrong)}
        return diagnose(code, what, where=case.where, stage=stage, remedy=remedy, detail=detail)
    what = "; ".join(f"for {change}, {one.text}" for change, one in wrong.items())
    return diagnose(
        "narrow_inputs",
        f"right for the inputs that get_inputs drew, and wrong for others that the reference takes: {what}",
        where=case.where,
        stage=stage,
        remedy=_remedy(wrong, stage),
        detail={CHANGES: list(wrong)},
    )


def _weighs(larger: WrongTensor, small: WrongTensor) -> bool:
    """Whether the error for larger inputs is more than a wrong epsilon explains there.

    An epsilon explains a small error there too: sorted inputs have regions in which all is small.
    """
    return larger.error is None or small.error is None or larger.error > small.error / 1000


def _scales_whole_numbers(others: Sequence[OtherInputs], case: Case) -> bool:
    """Whether SMALLER scales an input whose drawn values are whole numbers."""
    smaller = next(other.case for other in others if other.change == SMALLER)
    pairs = zip(smaller.inputs, case.inputs, strict=True)
    return any(new is not old and is_float(old) and values_of(old).whole for new, old in pairs)


def _wrong_outputs(candidate: Candidate, others: Sequence[OtherInputs]) -> dict[str, WrongTensor]:
    """Faults by change. After inputs that raise, another job goes on with the next ones."""
    wrong: dict[str, WrongTensor] = {}
    left = list(others)
    while left:
        job, ends, last = candidate.script(left[0].case), [], left[0].case
        for turn, other in enumerate(left):
            add_forward(job, candidate, other.case, str(turn), before=last)
            last = other.case
            ends.append(job.length)
        job.step(p.Drop())
        try:
            result = candidate.attempt(job, "forward", "forwards of other inputs")
        except Stopped as stopped:
            return wrong | ended_by(stopped)
        failure, failed = result.failure, len(left)
        if failure is not None:
            failed = next((turn for turn, end in enumerate(ends) if failure.step < end), len(left) - 1)
            wrong[left[failed].change] = WrongTensor(f"the forward raises {first_line(failure)}")
        for turn, other in enumerate(left[:failed]):
            for name in other.case.outputs:
                value = result.sealed.get(p.output_source(turn, name))
                if value is not None and _only_finite(other, name) and value.isfinite().all():
                    continue
                found = difference(name, other.case.outputs[name], value)
                if found is not None:
                    wrong.setdefault(other.change, found)
        left = left[failed + 1 :]
    return wrong


def ended_by(stopped: Stopped) -> dict[str, WrongTensor]:
    """The fault of a process that ended on some of the inputs, unless something outside may have ended it."""
    if stopped.kill is not None:
        raise stopped
    return {"inputs unlike them": WrongTensor(stopped.diagnosis.message)}


def _only_finite(other: OtherInputs, name: str) -> bool:
    """Whether an output need only be finite. Float16's range ends where float32 still computes with all digits."""
    in_float32 = other.change == NEAR_RANGE and other.case.outputs[name].dtype == torch.float16
    return other.change in SPECIALS and not in_float32


def difference(what: str, expected: Expected, value: torch.Tensor | None) -> WrongTensor | None:
    """The fault of a tensor, or None. Ties, which equal inputs have, may go to any element."""
    if value is None:
        return WrongTensor(f"{what} has another shape or dtype")
    if not expected.rounds:
        differs = tolerance.check(expected, value).message
        return None if differs is None else WrongTensor(differs, lost=True)
    without = replace(expected, spread=None)
    check = tolerance.check(without, value)
    if check.status != "failed":
        return None
    if not value.isfinite().all():
        return WrongTensor(f"{what} has NaN or infinity where the reference has none")
    if expected.spread is not None:
        reference64 = expected.reference64.to(value.device)
        rest = nonsmooth.absolute_error(value, reference64) - nonsmooth.FACTOR * expected.spread().to(value.device)
        if tolerance.passes(without, reference64 + rest.clamp_min(0)):
            return None
    error = check.rel_rms_error or 0.0
    if math.isinf(error):
        return WrongTensor(f"{what} is not zero, where the reference's is")
    lost = bool(((value == 0) & (expected.reference64.to(value.device).abs() > expected.rms)).any())
    return WrongTensor(f"{what} has a relative RMS error of {error:.2g}", error, lost)
