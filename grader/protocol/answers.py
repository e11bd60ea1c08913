"""Which evidence can be the answer to which job."""

from __future__ import annotations

from grader.protocol._base import Message, printable
from grader.protocol.evidence import (
    Constructed,
    Counted,
    Done,
    Evidence,
    Exported,
    Gauged,
    Gradients,
    Guarded,
    Imported,
    Outputs,
    Profiled,
    Timed,
    Traced,
    Warmed,
)
from grader.protocol.steps import (
    Backward,
    Construct,
    Count,
    Elapsed,
    Export,
    Forward,
    Gauge,
    Guard,
    Import,
    Job,
    Profile,
    Time,
    Trace,
    Warm,
)
from grader.protocol.wire import MalformedMessage

ANSWERS: dict[type[Message], type[Message]] = {
    Warm: Warmed,
    Import: Imported,
    Construct: Constructed,
    Forward: Outputs,
    Backward: Gradients,
    Trace: Traced,
    Export: Exported,
    Time: Timed,
    Elapsed: Timed,
    Count: Counted,
    Gauge: Gauged,
    Guard: Guarded,
    Profile: Profiled,
}
"""What a step is answered with, where it is not `Done`."""


def check_answer(job: Job, evidence: Evidence) -> None:
    """Raises MalformedMessage for an evidence that cannot be the answer to this job, however well-formed it is.

    One result of the right kind for each step, up to the one that is said to have raised; nothing about tensors that
    nobody asked for. Whoever reads an evidence may rely on that.
    """
    if evidence.id != job.id:
        raise MalformedMessage(f"it answers job {evidence.id} when asked job {job.id}")
    failure, results = evidence.failure, evidence.results
    if failure is None and len(results) != len(job.steps):
        raise MalformedMessage(f"{len(results)} results for {len(job.steps)} steps")
    if failure is not None and not len(results) == failure.step < len(job.steps):
        raise MalformedMessage(f"step {failure.step} of {len(job.steps)} failed after {len(results)} results")
    for step, result in zip(job.steps, results, strict=False):
        if type(result) is not ANSWERS.get(type(step), Done):
            raise MalformedMessage(f"a {type(step).__name__} answered with {type(result).__name__}")
        asked: tuple[str, ...] | None = None
        told: list[str] = []
        if isinstance(step, Export) and isinstance(result, Exported):
            asked, told = tuple(step.items), [info.name for info in result.refused]
        elif isinstance(step, Backward) and isinstance(result, Gradients):
            asked, told = step.wrt, [info.name for info in result.tensors]
        elif isinstance(step, Trace) and isinstance(result, Traced):
            asked, told = step.wrt, [reach.operand for reach in result.operands]
        if asked is not None and (
            len(set(told)) != len(told) or not set(told) <= {printable(name[:512]) for name in asked}
        ):
            raise MalformedMessage(f"{type(result).__name__} about what was not asked for")
