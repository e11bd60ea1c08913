"""Compares the tensors that a candidate returned with the reference's."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader.executor import JobResult
from grader.grading.candidate import MODEL, Candidate, names
from grader.grading.compare import tolerance
from grader.grading.compare.placement import Place
from grader.grading.oracle.case import Case
from grader.verdict.stages import TensorCheck


def check_output(case: Case, result: JobResult, source: str, name: str, place: Place | None = None) -> TensorCheck:
    """Compare the output `name`, or the buffer at `place`, with the tensor exported as `source`."""
    expected = (case.outputs if place is None else case.buffers)[name]
    sealed = result.sealed.get(source)
    if sealed is None:
        info = result.refused.get(source)
        actual = "nothing" if info is None else f"{info.dtype} {shape_text(info.shape)}"
        if info is not None and (info.shape, info.dtype) == (
            expected.shape,
            str(expected.dtype).removeprefix("torch."),
        ):
            actual = "without elements that could be copied out (sparse, or on no device)"
        message = f"{name} is {actual} where {expected.dtype} {shape_text(expected.shape)} is expected"
        return TensorCheck(name=name, status="failed", shape=expected.shape, message=message)
    if not case.comparable("outputs" if place is None else "buffers", name):
        return TensorCheck(
            name=name, status="not_checked", shape=expected.shape, message="the reference draws random numbers"
        )
    return tolerance.check(expected, sealed.view(expected.shape) if place is None else place.take(sealed))


def check_buffers(candidate: Candidate, case: Case, result: JobResult) -> list[TensorCheck]:
    """Compare the buffers after a forward, those that the candidate has."""
    places = candidate.matching(case).places
    return [
        check_output(case, result, f"state:{MODEL}:{theirs}", ours, places[ours])
        for ours, theirs in candidate.buffers(case).items()
    ]


def differ(buffers: Sequence[TensorCheck]) -> str | None:
    """The sentence "buffers `a` and `b` differ from the reference's" about failed checks, or None."""
    wrong = [check.name for check in buffers if check.status == "failed"]
    if not wrong:
        return None
    subject = f"buffer {names(wrong)} differs" if len(wrong) == 1 else f"buffers {names(wrong)} differ"
    return f"{subject} from the reference's"


def right_up_to_rounding(check: TensorCheck) -> bool:
    """Whether a tensor that passed has no error but rounding: less than half of what the tolerance allows.

    A mistake may pass in one mode and fail in another, to different degrees.
    """
    if check.rel_rms_error is None:
        return True
    baseline = check.yardstick_rel_rms_error or 0.0
    allowed = tolerance.BASELINE_FACTOR_L2 * baseline + tolerance.ROUNDING_UNITS * tolerance.EPSILON
    return check.rel_rms_error <= allowed / 2


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one dtype agree in every bit; NaNs are equal if their bits are."""
    one, other = (of.contiguous().reshape(-1).view(torch.uint8) for of in (a, b))
    return torch.equal(one, other.to(one.device))


def shape_text(shape: Sequence[int] | None) -> str:
    """A shape as `(2, 3)`; an unknown one as `()`."""
    return "(" + ", ".join(str(extent) for extent in shape or ()) + ")"
