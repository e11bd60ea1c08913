"""The status that diagnoses give a stage and a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from grader.verdict.codes import CODES
from grader.verdict.models import Diagnosis, Status
from grader.verdict.stages import StageStatus

_Result = TypeVar("_Result")

PRECEDENCE = (
    Status.GRADER_ERROR,
    Status.NOT_RUN,
    Status.INTEGRITY_VIOLATION,
    Status.INVALID_SUBMISSION,
    Status.BUILD_ERROR,
    Status.CRASHED,
    Status.TIMEOUT,
    Status.OUT_OF_MEMORY,
    Status.RUNTIME_ERROR,
    Status.WRONG_OUTPUT,
    Status.MISSING_BACKWARD,
    Status.WRONG_BACKWARD,
)
"""Statuses by precedence: the ones that end a grading first, and a missing gradient before a wrong one."""

STATUS_OF_STAGE = {"forward": Status.WRONG_OUTPUT, "backward": Status.WRONG_BACKWARD}
"""The status of an error whose code has none of its own."""


@dataclass(frozen=True)
class Judged(Generic[_Result]):
    """A stage's result, and its diagnoses, errors first."""

    result: _Result
    diagnoses: tuple[Diagnosis, ...]


def errors_first(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Errors, then warnings, then information; the order among equals is kept."""
    return sorted(diagnoses, key=lambda diagnosis: ("error", "warning", "info").index(diagnosis.severity))


def streams_blamed(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """A `wrong_stream` warning becomes the first error, as the cause of a timed call that went wrong."""
    causes, others = [], []
    for diagnosis in diagnoses:
        if diagnosis.code == "wrong_stream":
            causes.append(diagnosis.model_copy(update={"severity": "error"}))
        else:
            others.append(diagnosis)
    return causes + others


def status_of(diagnoses: Iterable[Diagnosis]) -> Status:
    """The status that the most decisive diagnosis gives a verdict, CORRECT if there is none."""
    statuses = {status for diagnosis in diagnoses if (status := _status(diagnosis)) is not None}
    return min(statuses, key=PRECEDENCE.index, default=Status.CORRECT)


def stage_status(diagnoses: Iterable[Diagnosis]) -> StageStatus:
    """FAILED if a stage's diagnoses contain an error."""
    return StageStatus.PASSED if status_of(diagnoses) is Status.CORRECT else StageStatus.FAILED


def _status(diagnosis: Diagnosis) -> Status | None:
    own = CODES[diagnosis.code].status
    if own is not None or diagnosis.severity != "error":
        return own
    return STATUS_OF_STAGE[diagnosis.stage]
