"""The end of a grading that cannot go on."""

from __future__ import annotations

from dataclasses import dataclass

from grader.errors import printable
from grader.executor import Killer, WorkerLost
from grader.grading.messages import MAX_QUOTED, diagnose, first_line, usual_remedy
from grader.protocol import Failure
from grader.verdict.models import Diagnosis, StageName, Status

LOG_TAIL_CHARACTERS = 16 << 10
"""Last characters of a build log or of a lost worker's output that a verdict keeps: a hundred lines or more."""

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
        remedy = "find what in it ends or stops the process, such as a signal or a limit"
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
