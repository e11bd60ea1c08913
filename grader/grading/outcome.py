"""Composes diagnoses, derives the status, and ends a grading that cannot go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from grader.errors import printable
from grader.executor import Killer, WorkerLost
from grader.protocol import Failure
from grader.verdict.codes import CODES, Severity
from grader.verdict.models import Diagnosis, StageName, Status
from grader.verdict.stages import StageStatus

_Result = TypeVar("_Result")
MAX_QUOTED = 400
"""Characters of a submission's or compiler's text that a message quotes: two lines of a wide terminal. It also bounds
the text that patterns are searched in."""

MAX_LISTED = 8
"""Names or places that a message lists: more do not fit on a line. A choice."""

LOG_TAIL_CHARACTERS = 16 << 10
"""Last characters of a build log or of a lost worker's output that a verdict keeps: a hundred lines or more."""

VARIES = (
    "look for a race between threads, on a GPU a missing __syncthreads(), for memory that is read before it is "
    "written, state that one call leaves to the next, or random numbers that the reference does not draw"
)
"""The remedy for what differs between equal calls."""

KILLED_CHILD = ("Killed signal terminated", "signal 9", "SIGKILL", "by signal: Killed", "was terminated abruptly")
"""Parts of what gcc, its linker, nvcc, Python's subprocess and process pools, and torch say of a killed process."""


@dataclass(frozen=True)
class Kill:
    """The end of a process of the submission, which something outside may have caused."""

    killer: Killer
    doing: str
    job: str = ""
    """Number and steps of the job: with them a repetition in a fresh process is recognised."""


class Stopped(Exception):
    """Ends the grading of a submission; the diagnosis decides the verdict's status."""

    def __init__(self, diagnosis: Diagnosis, kill: Kill | None = None) -> None:
        """With a `kill`, the diagnosis holds only if it is confirmed in a fresh process (`attempts.py`)."""
        super().__init__(diagnosis.message)
        self.diagnosis, self.kill = diagnosis, kill


@dataclass(frozen=True)
class Judged(Generic[_Result]):
    """A stage's result, and its diagnoses, errors first."""

    result: _Result
    diagnoses: tuple[Diagnosis, ...]


def diagnose(
    code: str,
    what: str,
    *,
    where: str | None = None,
    amount: str | None = None,
    remedy: str | None = None,
    stage: StageName | None = None,
    severity: Severity | None = None,
    detail: Mapping[str, object] | None = None,
) -> Diagnosis:
    """A diagnosis under a code of `grader.verdict.codes`, with the message `what (where), amount: remedy`.

    `what` is wrong, `where` (variant, mode, layout), by what `amount` (numbers with units), and the `remedy` that mends
    it. Stage and severity are the code's own unless given.
    """
    message = what + (f" ({where})" if where else "") + (f", {amount}" if amount else "")
    return Diagnosis(
        code=code,
        stage=stage or CODES[code].stage,
        message=f"{message}: {remedy}" if remedy else message,
        severity=severity or CODES[code].severity,
        detail=dict(detail or {}),
    )


def fold(cause: Diagnosis, consequences: Sequence[Diagnosis]) -> list[Diagnosis]:
    """The cause with the errors that follow from it in its `detail`, then consequences that are no errors.

    One cause is one diagnosis: what follows from it mends itself with it.
    """
    errors = [f"{one.code}: {one.message}" for one in consequences if one.severity == "error"]
    if errors:
        before = cause.detail.get("consequences", [])
        assert isinstance(before, list)
        cause = cause.model_copy(update={"detail": {**cause.detail, "consequences": [*before, *errors]}})
    return [cause, *(one for one in consequences if one.severity != "error")]


def said_of_eval(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis, for a fault that only eval() shows."""
    return diagnosis.model_copy(update={"message": f"in eval(), {diagnosis.message}"})


def on_another_draw(diagnosis: Diagnosis, other: str = "another draw of inputs and parameters") -> Diagnosis:
    """The same diagnosis, for a fault that the first draw does not show."""
    return diagnosis.model_copy(update={"message": f"on {other}, {diagnosis.message}"})


def lost(worker_lost: WorkerLost, stage: StageName, doing: str) -> Stopped:
    """The worker died or gave no answer while it was `doing` something."""
    codes = {
        Status.TIMEOUT: "timed_out",
        Status.OUT_OF_MEMORY: "out_of_memory",
        Status.RUNTIME_ERROR: "raised",
        Status.INTEGRITY_VIOLATION: "protocol_violation",
    }
    code = codes.get(worker_lost.status, "crashed")
    detail = {"output_tail": worker_lost.output[-LOG_TAIL_CHARACTERS:]} if worker_lost.output else {}
    what = f"the submission's process {worker_lost}"
    killer = worker_lost.killer
    printed = worker_lost.output.strip().splitlines()
    if killer is Killer.ITSELF and printed:  # such as a library's reason to give up
        what += f", and last printed '{printable(printed[-1][:MAX_QUOTED])}'"
    remedy = usual_remedy(code)
    if killer is not None:
        remedy = "find what in it ends the process, such as a signal or a limit"
    elif worker_lost.status is Status.RUNTIME_ERROR:
        remedy = "close the files, pipes and sockets that it opens, and leave the process's limits as they are"
    kill = None if killer in (None, Killer.ITSELF) else Kill(killer, doing, worker_lost.job)
    return Stopped(diagnose(code, what, where=doing, remedy=remedy, stage=stage, detail=detail), kill)


def raised(failure: Failure, stage: StageName, doing: str, *, usual_code: str = "raised") -> Stopped:
    """A step raised while the worker was `doing` something; `usual_code` unless memory or CUDA failed."""
    code = usual_code
    if failure.kind == "out_of_memory":
        code = "out_of_memory"
    elif "CUDA error" in failure.text or failure.type_name == "AcceleratorError":
        code = "cuda_error"
    return Stopped(
        diagnose(
            code,
            first_line(failure),
            where=doing,
            remedy=usual_remedy(code),
            stage=stage,
            detail={"traceback": failure.traceback},
        ),
        killed_child(failure.text, doing),
    )


def killed_child(text: str, doing: str) -> Kill | None:
    """The kill of a process that the submission started, such as a compiler, if the text reports one."""
    return Kill(Killer.UNKNOWN, doing) if any(words in text for words in KILLED_CHILD) else None


def usual_remedy(code: str) -> str:
    """The code's general remedy, in the form that ends a message."""
    remedy = CODES[code].remedy.rstrip(".")
    return remedy[:1].lower() + remedy[1:]


def first_line(failure: Failure) -> str:
    """The exception's type and the first line of its text, at most MAX_QUOTED characters of it."""
    first = (failure.text.strip().splitlines() or [""])[0][:MAX_QUOTED]
    return f"{failure.type_name}: {first}" if first else failure.type_name


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


def fresh_tensor(call: str, graphs: bool) -> str:
    """The remedy for a result that the next call, `forward` or `backward`, overwrites."""
    if not graphs:
        return f"return a fresh tensor from each {call}, not a buffer that is kept"
    return (
        f"return a clone() of each result of the {call}: a CUDA graph writes to the same memory in every call, "
        "and torch.compiler.cudagraph_mark_step_begin() alone keeps nothing"
    )
