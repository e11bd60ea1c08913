"""How a stage ends early: the submission cannot be taken any further."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grader.executor import WorkerLost
from grader.protocol import Failure
from grader.verdict.codes import CODES
from grader.verdict.models import Diagnosis, Status


class Stopped(Exception):
    """Carries the verdict's status and its diagnosis up to the pipeline. No error of ours."""

    def __init__(self, status: Status, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message)
        self.status, self.diagnosis = status, diagnosis


def diagnose(
    code: str,
    what: str,
    *,
    where: str | None = None,
    amount: str | None = None,
    remedy: str | None = None,
    stage: str | None = None,
    severity: str = "error",
    detail: Mapping[str, object] | None = None,
) -> Diagnosis:
    """A diagnosis under a code of `grader.verdict.codes`. Its message reads `what (where), amount: remedy`.

    `what` is wrong, `where` (variant, mode, layout), by what `amount` (numbers with units), and the `remedy` that mends
    it. The stage is the code's own unless `stage` says otherwise.
    """
    message = what + (f" ({where})" if where else "") + (f", {amount}" if amount else "")
    return Diagnosis(
        code=code,
        stage=stage or CODES[code].stage,  # type: ignore[arg-type]
        message=f"{message}: {remedy}" if remedy else message,
        severity=severity,  # type: ignore[arg-type]
        detail=dict(detail or {}),
    )


def in_eval(diagnosis: Diagnosis) -> Diagnosis:
    """The same, found there alone."""
    return diagnosis.model_copy(update={"message": f"in eval(), {diagnosis.message}"})


def lost(worker_lost: WorkerLost, stage: str, doing: str) -> Stopped:
    """The worker died or fell silent while it was `doing` something."""
    codes = {
        Status.TIMEOUT: "timed_out",
        Status.OUT_OF_MEMORY: "out_of_memory",
        Status.INTEGRITY_VIOLATION: "protocol_violation",
    }
    code = codes.get(worker_lost.status, "crashed")
    detail = {"output_tail": worker_lost.output[-4096:]} if worker_lost.output else {}
    message = f"{doing}: the submission's process {worker_lost}"
    return Stopped(worker_lost.status, diagnose(code, message, stage=stage, detail=detail))


def raised(failure: Failure, stage: str, doing: str) -> Stopped:
    """A step raised while it was `doing` something."""
    message = f"{doing}: {first_line(failure)}"
    detail = {"traceback": failure.traceback}
    if failure.kind == "out_of_memory":
        return Stopped(Status.OUT_OF_MEMORY, diagnose("out_of_memory", message, stage=stage, detail=detail))
    code = "cuda_error" if "CUDA error" in failure.text or failure.type_name == "AcceleratorError" else "raised"
    return Stopped(Status.RUNTIME_ERROR, diagnose(code, message, stage=stage, detail=detail))


def first_line(failure: Failure) -> str:
    """The exception's type, and the first line of what it says."""
    first = (failure.text.strip().splitlines() or [""])[0]
    return f"{failure.type_name}: {first}" if first else failure.type_name


def errors_first(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Errors, warnings, information; among each, in the order in which they came."""
    return sorted(diagnoses, key=lambda diagnosis: ("error", "warning", "info").index(diagnosis.severity))


def streams_blamed(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Of a wrong timed call: a stream that the checks could only warn of is its cause, and comes first."""
    causes, others = [], []
    for diagnosis in diagnoses:
        if diagnosis.code == "wrong_stream":
            causes.append(diagnosis.model_copy(update={"severity": "error"}))
        else:
            others.append(diagnosis)
    return causes + others
