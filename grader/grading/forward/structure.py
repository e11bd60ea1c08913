"""Compares what a forward returns with the reference: names, kinds, shapes, dtypes and devices."""

from __future__ import annotations

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.candidate import names
from grader.grading.compare.outputs import shape_text
from grader.grading.compare.tolerance import Expected
from grader.grading.oracle.case import Case
from grader.grading.outcome import diagnose, usual_remedy
from grader.machine.backends import backend
from grader.verdict.models import Device, Diagnosis


def judge_structure(case: Case, result: JobResult, device: Device) -> Diagnosis | None:
    """A diagnosis if number, kind, shape, dtype or device of the outputs is not the reference's."""
    outputs = {info.name: info for info in result.of(p.Outputs)[0].tensors}
    due = (*case.outputs, *sorted(case.others))
    if set(outputs) != set(due):
        got = names(list(outputs)) if outputs else "nothing"
        return _diagnosis("output_structure", f"the reference returns {names(due)}, ModelNew returns {got}", case)
    for name in case.others:
        if outputs[name].kind == "tensor":
            return _diagnosis("output_structure", f"{name} is a tensor, the reference's is none", case)
    for name, expected in case.outputs.items():
        code, what = _differs(name, outputs[name], expected, device)
        if code is not None:
            return _diagnosis(code, what, case)
    return None


def _differs(name: str, info: p.TensorInfo, expected: Expected, device: Device) -> tuple[str | None, str]:
    dtype = str(expected.dtype).removeprefix("torch.")
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


def _diagnosis(code: str, what: str, case: Case) -> Diagnosis:
    return diagnose(code, what, where=f"variant {case.name}", remedy=usual_remedy(code))
