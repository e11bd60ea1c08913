"""Judges the plain vector-Jacobian product of one case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.backward.classify import GradientFault, classify
from grader.grading.backward.describe import describe
from grader.grading.backward.missing import explain_missing, ordinal, recording_off
from grader.grading.candidate.buffers import USUAL, explain_buffers
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_buffers, check_output, differ
from grader.grading.candidate.parts import export_buffers
from grader.grading.candidate.vjp import Product, product, product_job, sparse_for_dense
from grader.grading.messages import diagnose, first_line, fold, in_backticks
from grader.grading.oracle.case import Case, export_outputs
from grader.grading.oracle.each_output import idle_outputs
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import draw_cotangents
from grader.grading.status import status_of
from grader.grading.stopped import raised
from grader.protocol import Failure
from grader.verdict.models import Diagnosis, Status
from grader.verdict.stages import TensorCheck

UNDETACHED = "undetached"
"""The key of a diagnosis's detail with the outputs that carry gradients and should not."""
NO_DERIVATIVE = ("derivative for", "no autograd formula", "does not have an autograd", "not differentiable")
"""Parts of PyTorch's messages about an operation without a backward."""
INVALID_GRADIENT = re.compile(
    r"Function (\w+) returned an invalid gradient at index (\d+) - got (\[[^\]]*\])"
    r" but expected shape compatible with (\[[^\]]*\])"
)
"""PyTorch's message for a gradient of the wrong shape."""


@dataclass(frozen=True)
class JudgedProduct:
    """One product of one case."""

    checks: list[TensorCheck]
    diagnoses: list[Diagnosis]
    """Empty when it is right."""
    product: Product | None = None
    """None if the backward raised."""
    faults: tuple[GradientFault, ...] = ()
    """The faults of gradients that exist."""

    @property
    def gradients_are_right(self) -> bool:
        """Nothing is wrong but a buffer, or an output that is not detached."""
        return all(
            diagnosis.code == "buffers_not_updated" or UNDETACHED in diagnosis.detail for diagnosis in self.diagnoses
        )

    @property
    def missing(self) -> bool:
        """Some gradient does not exist."""
        return status_of(self.diagnoses) is Status.MISSING_BACKWARD


def judge_product(candidate: Candidate, oracle: Oracle, case: Case) -> JudgedProduct:
    """Judge one product for a random grad_output, with the outputs and buffers that its forward leaves.

    Raises Stopped when the worker is lost, or the forward raises.
    """
    job = product_job(candidate, case)
    export_outputs(job, case, "a")
    export_buffers(job, candidate, case)
    result = candidate.attempt(job, "backward", f"backward of {case.where}")
    if any(returned.recording_off for returned in result.of(p.Outputs)):
        return _without_gradients(case, "missing", recording_off(case, candidate.graph_ends))
    if result.failure is not None:
        return _judge_failure(candidate, case, result, result.failure)
    outputs = {info.name: info for info in result.of(p.Outputs)[0].tensors}
    wrong_outputs = list(_wrong_outputs(case, result))  # read before the gradients, and not kept beside them
    known = set(outputs) >= set(case.cotangents)
    detached = [name for name in case.cotangents if known and not outputs[name].requires_grad]
    detached = [name for name in detached if name not in idle_outputs(oracle, case)]
    actual = product(candidate, case, result)
    actual = replace(actual, misshapen={**actual.misshapen, **sparse_for_dense(candidate, case, result)})
    checks, faults = classify(case, actual)
    lost = [fault.name for fault in faults if fault.code in ("input_grad_none", "param_grad_none")]
    present = tuple(fault for fault in faults if fault.name not in lost)
    diagnoses = describe(present, case.name)
    if lost or detached:
        # A missing gradient makes those wrong that pass through it; a detached output affects all.
        first, *others = explain_missing(candidate, case, lost, detached)
        follows = [one for one in diagnoses if one.code == "grad_wrong" or (detached and one.code == "grad_zero")]
        diagnoses = [*fold(first, follows), *others, *(one for one in diagnoses if one not in follows)]
    undetached = [name for name in case.outputs if name not in case.cotangents and name in outputs]
    undetached = [name for name in undetached if outputs[name].requires_grad]
    if undetached and not diagnoses:
        diagnoses = _reaches(candidate, case, undetached)
    for output in wrong_outputs:
        # What is missing decides the status, so it stays.
        diagnoses = [output, *diagnoses] if lost or detached else fold(output, diagnoses)
    if not diagnoses:
        diagnoses = _buffers_differ(candidate, case, result)
    return JudgedProduct(checks, diagnoses, actual, present)


def _wrong_outputs(case: Case, result: JobResult) -> Iterator[Diagnosis]:
    """`output_wrong` for each output of the forward with gradients enabled."""
    for name in case.outputs:
        check = check_output(case, result, name)
        result.take(p.output_source("a", name))
        if check.status == "failed":
            what = f"with gradients enabled, {check.message}"
            remedy = "compute the same output with and without gradients"
            yield diagnose("output_wrong", what, where=case.where, stage="backward", remedy=remedy)


def _reaches(candidate: Candidate, case: Case, undetached: Sequence[str]) -> list[Diagnosis]:
    """`unexpected_gradient` if outputs that the reference detaches carry a gradient other than zero."""
    given = draw_cotangents({name: case.outputs[name] for name in undetached}, candidate.device)
    result = candidate.attempt(
        product_job(candidate, case, cotangents=given), "backward", f"backward of {in_backticks(undetached)}"
    )
    if result.failure is not None:
        return []
    gradients = product(candidate, case, result).gradients
    reached = [case.operand_names[name] for name, value in gradients.items() if value is not None and value.any()]
    if not reached:
        return []
    what = f"{in_backticks(undetached)} carries gradients to {in_backticks(reached)}, and none in the reference"
    remedy, detail = f"detach {in_backticks(undetached)}", {UNDETACHED: list(undetached)}
    return [diagnose("unexpected_gradient", what, where=case.where, remedy=remedy, detail=detail)]


def _buffers_differ(candidate: Candidate, case: Case, result: JobResult) -> list[Diagnosis]:
    """Buffers that are right without gradients: with them nothing updates them, or the backward does so again."""
    matched = candidate.buffers(case)
    checks = check_buffers(candidate, case, result)
    wrong = differ(checks, case.wrt)
    if wrong is None:
        return []
    failed = [check.name for check in checks if check.status == "failed"]
    amount, remedy = explain_buffers(
        case, {name: result.sealed.get(p.state_source(MODEL, matched[name])) for name in failed}
    )
    mode = "train()" if case.training else "eval()"
    return [
        diagnose(
            "buffers_not_updated",
            f"{wrong} after one forward with gradients and its backward in {mode}, and not after a forward without",
            where=case.where,
            amount=amount,
            remedy="update buffers in the forward, once" if remedy == USUAL else remedy,
            stage="backward",
        )
    ]


def _without_gradients(case: Case, status: Literal["failed", "missing"], diagnosis: Diagnosis) -> JudgedProduct:
    """The product of a backward from which no gradient came."""
    operands = (case.operand_names[name] for name in case.wrt)
    return JudgedProduct(
        [TensorCheck(name=name, status=status, message=diagnosis.message) for name in operands], [diagnosis]
    )


def _judge_failure(candidate: Candidate, case: Case, result: JobResult, failure: Failure) -> JudgedProduct:
    """The diagnosis for a backward that raised. Raises Stopped if the forward did, or for an unknown reason."""
    doing = f"backward of {case.where}"
    if not any(isinstance(one, p.Outputs) for one in result.evidence.results):
        raise raised(failure, "backward", doing)

    def judged(code: str, status: Literal["failed", "missing"], what: str, remedy: str) -> JudgedProduct:
        detail = {"traceback": failure.traceback, "variant": case.name}
        return _without_gradients(case, status, diagnose(code, what, where=case.where, remedy=remedy, detail=detail))

    text = first_line(failure)
    if failure.type_name == "NotImplementedError" or any(mark in text for mark in NO_DERIVATIVE):
        what, remedy = f"the backward is not implemented: {text}", "write the Function's backward"
        if "register_autograd" in text:
            remedy = "give the operator's backward to its register_autograd"
        return judged("backward_not_implemented", "missing", what, remedy)
    if "invalid gradient" in text or "incorrect number of gradients" in text:
        return judged("grad_shape", "failed", *_invalid_gradient(text))
    if "modified by an inplace operation" in text:
        what = f"a tensor that backward needs was changed in place: {text}"
        return judged("saved_tensor_mutated", "failed", what, "write into a new tensor")
    again = candidate.attempt(product_job(candidate, case, contiguous_grads=True), "backward", doing)
    if again.failure is None:
        what = f"backward raises {text} unless grad_output is made contiguous"
        remedy = "call grad_output.contiguous() before view() or data_ptr()"
        return judged("assumes_contiguous_grad_output", "failed", what, remedy)
    raise raised(failure, "backward", doing)


def _invalid_gradient(text: str) -> tuple[str, str]:
    """(fault, remedy) for PyTorch's error about the shape or number of gradients; `first_line` bounds `text`."""
    match = INVALID_GRADIENT.search(text)
    if match is None:
        return text, "return one gradient for each argument of forward"
    function, index, got, due = match.groups()
    what = (
        f"the backward of autograd.Function `{function.removesuffix('Backward')}` returns a gradient of shape {got} "
        f"for its {ordinal(int(index) + 1)} input of shape {due}"
    )
    return what, "return gradients shaped like the inputs"
