"""Compares what a candidate returned with the reference's: its structure, then its tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.candidate.candidate import Candidate
from grader.grading.compare import tolerance
from grader.grading.compare.expected import EPSILON, ROUNDING_UNITS, Expected
from grader.grading.messages import diagnose, in_backticks, shape_text, usual_remedy
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.fewer_rows import ROWS
from grader.machine.backends import backend
from grader.verdict.models import Device, Diagnosis, StageName
from grader.verdict.stages import StageStatus, TensorCheck, VariantResult

USUAL_TENSORS = ("", "Tensor", "Parameter")
"""Type names of tensors that compute as tensors do, and that of None."""


def check_output(case: Case, result: JobResult, name: str, tape: str = "a") -> TensorCheck:
    """Compare the output `name` that a forward left under a tape."""
    source = p.output_source(tape, name)
    expected, sealed = case.outputs[name], result.sealed.get(source)
    if sealed is None:
        return _not_returned(expected, result.refused.get(source), name)
    if not case.comparable("outputs", name):
        return _not_compared(expected, name)
    return tolerance.check(expected, sealed.view(expected.shape))


def are_right(case: Case, result: JobResult, tape: str) -> bool:
    """Whether all outputs that a forward left under a tape are, as far as they are compared."""
    return all(check_output(case, result, name, tape).status != "failed" for name in case.outputs)


def check_buffers(candidate: Candidate, case: Case, result: JobResult) -> list[TensorCheck]:
    """Compare the buffers after a forward, those that the candidate has."""
    places, found, pairs = candidate.matching(case).places, dict[str, TensorCheck](), dict[str, tolerance.Pair]()
    for name, theirs in candidate.buffers(case).items():
        expected, source = case.buffers[name], p.state_source(MODEL, theirs)
        sealed = result.sealed.get(source)
        if sealed is None:
            found[name] = _not_returned(expected, result.refused.get(source), name)
        elif not case.comparable("buffers", name):
            found[name] = _not_compared(expected, name)
        else:
            pairs[name] = expected, places[name].take(sealed)
    found |= zip(pairs, tolerance.check_each(list(pairs.values())), strict=True)
    return [found[name] for name in candidate.buffers(case)]


def _not_returned(expected: Expected, info: p.TensorInfo | None, name: str) -> TensorCheck:
    actual = "nothing" if info is None else f"{info.dtype} {shape_text(info.shape)}"
    if info is not None and (info.shape, info.dtype) == (expected.shape, p.dtype_name(expected.dtype)):
        actual = "without elements that could be copied out (sparse, or on no device)"
    message = f"{name} is {actual} where {expected.dtype} {shape_text(expected.shape)} is expected"
    return TensorCheck(name=name, status="failed", shape=expected.shape, message=message)


def _not_compared(expected: Expected, name: str) -> TensorCheck:
    message = "the reference draws random numbers"
    return TensorCheck(name=name, status="not_checked", shape=expected.shape, message=message)


def wrong_at_full_size(
    candidate: Candidate,
    cases: Sequence[Case],
    case: Case,
    failed: Collection[str],
    judge: Callable[[Case], Sequence[TensorCheck]],
    stage: StageName,
) -> list[VariantResult]:
    """The full size's result if one of the tensors that `failed` with fewer rows is wrong there too.

    Then the verdict stands, with a fault that shows more in a small tensor; without it, only the full size counts.
    """
    whole = cases[-1]
    if case.variant != ROWS or whole.variant == ROWS or not failed:
        return []
    found = judge(whole)
    candidate.release_after(whole, stage)
    if not any(check.status == "failed" and check.name in failed for check in found):
        return []
    return [VariantResult(variant=whole.name, status=StageStatus.FAILED, seed=whole.seed, tensors=tuple(found))]


def differ(buffers: Sequence[TensorCheck], parameters: Collection[str] = ()) -> str | None:
    """The sentence "buffers `a` and `b` differ from the reference's" about failed checks, or None.

    Those of `parameters` are called so: a forward may write to them too.
    """
    wrong = [check.name for check in buffers if check.status == "failed"]
    if not wrong:
        return None
    noun = "parameter" if set(wrong) <= set(parameters) else "buffer"
    subject = f"{noun} {in_backticks(wrong)} differs" if len(wrong) == 1 else f"{noun}s {in_backticks(wrong)} differ"
    return f"{subject} from the reference's"


def right_up_to_rounding(check: TensorCheck) -> bool:
    """Whether a tensor that passed has no error but rounding: less than half of what the tolerance allows.

    A mistake may pass in one mode and fail in another, to different degrees.
    """
    if check.rel_rms_error is None:
        return True
    baseline = check.baseline_rel_rms_error or 0.0
    allowed = tolerance.BASELINE_FACTOR_L2 * baseline + ROUNDING_UNITS * EPSILON
    return check.rel_rms_error <= allowed / 2


def judge_structure(
    case: Case, result: JobResult, device: Device, reference: Callable[[], Sequence[p.TensorInfo]]
) -> Diagnosis | None:
    """A diagnosis if number, kind, shape, dtype or device of the outputs is not that of the `reference`."""
    outputs = {info.name: info for info in result.of(p.Outputs)[0].tensors}
    due = (*case.outputs, *sorted(case.others))
    if set(outputs) != set(due):
        got = in_backticks(list(outputs)) if outputs else "nothing"
        return _diagnosis(
            "output_structure", f"the reference returns {in_backticks(due)}, ModelNew returns {got}", case
        )
    for name in case.others:
        if outputs[name].kind == "tensor":
            return _diagnosis("output_structure", f"{name} is a tensor, the reference's is none", case)
    for name, expected in case.outputs.items():
        kind, due_kind = outputs[name].type_name, case.numbers.get(name)
        if kind != due_kind and (due_kind or kind in p.NUMBERS):
            what = f"{name} is {_a(kind or 'None')}, the reference's is {_a(due_kind or 'Tensor')}"
            return _diagnosis("output_structure", what, case)
        if due_kind:
            continue
        code, what = _differs(name, outputs[name], expected, device)
        if code is not None:
            return _diagnosis(code, what, case)
    usual_types = (*USUAL_TENSORS, *p.NUMBERS)
    unusual = {name: info.type_name for name, info in outputs.items() if info.type_name not in usual_types}
    usual = {info.name: info.type_name for info in reference()} if unusual else {}
    for name in case.outputs:
        if name in unusual and unusual[name] != usual.get(name):
            what = f"{name} is a {unusual[name]}, a subclass of torch.Tensor that may change what is computed from it"
            return _diagnosis("output_structure", what, case, "return a plain tensor: y.as_subclass(torch.Tensor)")
    return None


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "int" else kind if kind == "None" else f"a {kind}"


def _differs(name: str, info: p.TensorInfo, expected: Expected, device: Device) -> tuple[str | None, str]:
    dtype = p.dtype_name(expected.dtype)
    if info.kind != "tensor":
        kind = "None" if info.kind == "none" else f"a {info.type_name}"
        return "output_structure", f"{name} is {kind}, not a tensor"
    if info.shape != expected.shape:
        shapes = f"{shape_text(info.shape)}, the reference's has {shape_text(expected.shape)}"
        return "output_shape", f"{name} has shape {shapes}"
    if info.dtype != dtype:
        return "output_dtype", f"{name} has dtype {info.dtype}, the reference's has {dtype}"
    if info.device != backend(device).torch_device:
        return "output_device", f"{name} is on {info.device}, the reference's is on {backend(device).torch_device}"
    return None, ""


def _diagnosis(code: str, what: str, case: Case, remedy: str | None = None) -> Diagnosis:
    return diagnose(code, what, where=case.where, remedy=remedy or usual_remedy(code))
