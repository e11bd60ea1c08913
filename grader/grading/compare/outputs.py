"""Compares the tensors that a candidate returned with the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from grader.executor import JobResult
from grader.grading.candidate import MODEL, names
from grader.grading.compare import tolerance
from grader.grading.oracle.case import Case
from grader.verdict.stages import TensorCheck


def check_output(case: Case, result: JobResult, source: str, name: str, *, buffer: bool = False) -> TensorCheck:
    """Compare the output or buffer `name` with the tensor that the job exported as `source`."""
    expected = (case.buffers if buffer else case.outputs)[name]
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
    if not case.comparable("buffers" if buffer else "outputs", name):
        return TensorCheck(
            name=name, status="not_checked", shape=expected.shape, message="the reference draws random numbers"
        )
    return tolerance.check(expected, sealed.view(expected.shape))  # a buffer may be kept in another shape


def check_buffers(case: Case, result: JobResult, matched: Mapping[str, str]) -> list[TensorCheck]:
    """Compare the buffers after a forward; `matched` maps the reference's names to the candidate's."""
    return [
        check_output(case, result, f"state:{MODEL}:{theirs}", ours, buffer=True) for ours, theirs in matched.items()
    ]


def differ(buffers: Sequence[TensorCheck]) -> str | None:
    """The sentence "buffers `a` and `b` differ from the reference's" about failed checks, or None."""
    wrong = [check.name for check in buffers if check.status == "failed"]
    if not wrong:
        return None
    subject = f"buffer {names(wrong)} differs" if len(wrong) == 1 else f"buffers {names(wrong)} differ"
    return f"{subject} from the reference's"


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one dtype agree in every bit; NaNs are equal if their bits are."""
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8).to(a.device))


def shape_text(shape: Sequence[int] | None) -> str:
    """A shape as `(2, 3)`; an unknown one as `()`."""
    return "(" + ", ".join(str(extent) for extent in shape or ()) + ")"
