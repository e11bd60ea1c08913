"""One sealed tensor beside what the reference has for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from grader.executor import JobResult
from grader.grading.candidate import MODEL, names
from grader.grading.compare import tolerance
from grader.grading.oracle.case import Case
from grader.verdict.stages import TensorCheck


def check_output(case: Case, finding: JobResult, source: str, name: str, *, buffer: bool = False) -> TensorCheck:
    expected = (case.buffers if buffer else case.outputs)[name]
    sealed = finding.sealed.get(source)
    if sealed is None:
        info = finding.refused.get(source)
        have = "nothing" if info is None else f"{info.dtype} {shape_text(info.shape)}"
        if info is not None and (info.shape, info.dtype) == (
            expected.shape,
            str(expected.dtype).removeprefix("torch."),
        ):
            have = "without elements that could be copied out (sparse, or on no device)"
        message = f"{name} is {have} where {expected.dtype} {shape_text(expected.shape)} is due"
        return TensorCheck(name=name, status="failed", shape=expected.shape, message=message)
    if not case.comparable("buffers" if buffer else "outputs", name):
        return TensorCheck(
            name=name, status="not_checked", shape=expected.shape, message="the reference draws random numbers"
        )
    return tolerance.check(expected, sealed.view(expected.shape))  # a buffer may be kept in another shape


def check_buffers(case: Case, finding: JobResult, held: Mapping[str, str]) -> list[TensorCheck]:
    """After a forward; `held`: the reference's names to the candidate's."""
    return [check_output(case, finding, f"state:{MODEL}:{theirs}", ours, buffer=True) for ours, theirs in held.items()]


def differ(buffers: Sequence[TensorCheck]) -> str | None:
    """Of those that failed: "buffers `a` and `b` differ from the reference's"."""
    wrong = [check.name for check in buffers if check.status == "failed"]
    if not wrong:
        return None
    subject = f"buffer {names(wrong)} differs" if len(wrong) == 1 else f"buffers {names(wrong)} differ"
    return f"{subject} from the reference's"


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8).to(a.device))


def shape_text(shape: Sequence[int] | None) -> str:
    return "(" + ", ".join(str(extent) for extent in shape or ()) + ")"
