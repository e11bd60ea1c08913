"""The worker process: reads jobs from a socket until the referee closes it."""

from __future__ import annotations

import gc
import math
import os
import resource
import traceback

import numpy
import torch
from pydantic import ValidationError

from grader.protocol import CONTROL_FD, OUT_OF_MEMORY, Evidence, Failure, Job, Result, Step
from grader.worker import passes, registry, setup
from grader.worker.channel import Channel
from grader.worker.checks import profile, redzones, survey, work_count
from grader.worker.compile import ahead
from grader.worker.compile.importing import Builder, MissingClass
from grader.worker.compile.toolkit import complete_toolkit
from grader.worker.self_kill import forbid_self_kill
from grader.worker.session import Session
from grader.worker.timing import clock, pace, peaks, queue

HANDLER_MODULES = (setup, ahead, passes, clock, queue, pace, peaks, work_count, redzones, profile, survey)
"""Importing them registers the handlers of all steps."""

TEXT_CHARACTERS = 32 << 10
"""Longest error message and traceback in a `Failure`; the middle of a longer one is cut out."""

START_LIMITS: dict[str, float] = {}
"""Resource limits before the submission was imported; empty until `main` runs."""


def main(descriptor: int, niceness: int, architecture: str) -> None:
    """Serve the socket `descriptor`.

    `niceness` is added to that of this process and all that it starts. CUDA extensions are compiled for
    `architecture`, such as `9.0`; it is an argument because a zygote starts before the GPU is known.
    """
    forbid_self_kill()
    START_LIMITS.update(soft_limits())
    os.nice(niceness)
    os.environ["TORCH_CUDA_ARCH_LIST"] = architecture
    if descriptor != CONTROL_FD:
        os.dup2(descriptor, CONTROL_FD)
        os.close(descriptor)
    numpy.random.seed()  # else all copies of one process draw the same numbers; Python reseeds its own generator
    complete_toolkit()
    session = Session(Builder())
    session.builder.install()
    channel = Channel(CONTROL_FD)
    gc.freeze()  # half a million permanent objects, which each full collection would visit for a tenth of a second
    gc.enable()  # it was off while torch was imported
    channel.send(Evidence(id=0))
    while (received := channel.receive()) is not None:
        channel.send(carry_out(session, *received))


def carry_out(session: Session, job: Job, descriptors: list[int]) -> Evidence:
    """Run the steps until one raises; whatever a submission raises, even SystemExit, becomes evidence."""
    results: list[Result] = []
    failure = None
    session.descriptors = descriptors
    if session.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for index, step in enumerate(job.steps):
        built_before = len(session.builder.events)
        try:
            results.append(registry.carry_out(session, step))
        except BaseException as error:
            failure = describe_failure(error, index, step, session, built_before)
            break
    peak = torch.cuda.max_memory_reserved() if session.device.type == "cuda" else 0
    return Evidence(id=job.id, results=tuple(results), failure=failure, peak_device_bytes=peak)


def describe_failure(error: BaseException, index: int, step: Step, session: Session, built_before: int) -> Failure:
    """Describe what a step raised; `built_before` is the number of builds before the step."""
    builds = tuple(session.builder.events[built_before:])
    kind: str = step.failure_kind
    text = _message(error)
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        kind = "out_of_memory"
    elif isinstance(error, MissingClass):
        kind = "missing_class"
    elif builds and not builds[-1].ok:  # before its text, in which a compiler quotes the source
        kind = "build"
    elif OUT_OF_MEMORY.search(text):
        kind = "out_of_memory"
    if (lowered := lowered_limits()) and (kind == "out_of_memory" or isinstance(error, OSError)):
        text += f" (the submission has set {lowered})"
    return Failure(
        step=index,
        kind=kind,  # type: ignore[arg-type]
        type_name=type(error).__name__[:512],
        text=_shortened(text),
        traceback=_shortened("".join(traceback.format_exception(error))),
        builds=builds,
    )


def lowered_limits() -> str:
    """Return the resource limits that are lower than at the start, such as `RLIMIT_NOFILE to 16`."""
    now = soft_limits()
    lowered = {name: now[name] for name, value in START_LIMITS.items() if now[name] < value}
    return ", ".join(f"{name} to {value:.0f}" for name, value in lowered.items())


def soft_limits() -> dict[str, float]:
    """Return the soft resource limits of this process by name."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"]  # an older name
    values = {name: resource.getrlimit(getattr(resource, name))[0] for name in names}
    return {name: math.inf if value == resource.RLIM_INFINITY else value for name, value in values.items()}


def _message(error: BaseException) -> str:
    """The exception's text, which is the submission's code."""
    try:
        return _fault(error) if isinstance(error, ValidationError) else str(error)
    except BaseException as failed:
        return f"its message cannot be read: __str__ raised {type(failed).__name__}"


def _fault(error: ValidationError) -> str:
    """What is wrong with an answer: the first line of Pydantic's own text only counts."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{error.title}, {'.'.join(map(str, first['loc']))}: {first['msg']}"


def _shortened(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= TEXT_CHARACTERS:
        return text
    return text[: TEXT_CHARACTERS // 2] + "\n[...]\n" + text[-TEXT_CHARACTERS // 2 :]
