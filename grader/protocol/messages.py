"""The two messages, job and evidence: their encoding, and the check that an evidence fits its job."""

from __future__ import annotations

import re
import struct
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from grader.protocol import checks, kernels, passes, setup, timing
from grader.protocol.base import NAME_CHARACTERS, Many, Message, Name, Result, Step, Text, one_line

__all__ = [
    "CONTROL_FD",
    "HEADER",
    "MAX_EVIDENCE_BYTES",
    "MAX_JOB_BYTES",
    "MAX_LISTED_ERRORS",
    "OUT_OF_MEMORY",
    "Evidence",
    "Failure",
    "Job",
    "MalformedMessage",
    "check_answer",
    "decode_evidence",
    "decode_job",
    "encode",
]

CONTROL_FD = 3
"""File descriptor of the worker's end of the control socket."""

MAX_JOB_BYTES = 16 << 20
"""A worker refuses a longer job; the submission's source is the largest part of one."""
MAX_EVIDENCE_BYTES = 4 << 20
"""A longer evidence is a protocol violation; a verdict needs a few kilobytes."""

OUT_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|error: \w+_ALLOC_FAILED"
)
"""Messages for a lack of memory that is no OutOfMemoryError: PyTorch's on the CPU, and where the driver, cuBLAS or
cuDNN allocates for itself."""

MAX_LISTED_ERRORS = 1000
"""With more validation errors only their number is reported: each would become a Python object."""

HEADER = struct.Struct("<I")
"""Length in bytes of the JSON document that follows."""

MODULES = (setup, passes, timing, checks, kernels)
"""The modules that declare steps: importing them fills the registries that the unions below are made of."""

if TYPE_CHECKING:
    AnyStep = Step
    AnyResult = Result
else:
    AnyStep = Annotated[reduce(or_, Step.kinds), Field(discriminator="do")]
    AnyResult = Annotated[reduce(or_, Result.kinds), Field(discriminator="did")]


class Job(Message):
    """A short program of steps; `id` comes back with the evidence."""

    id: int
    steps: tuple[AnyStep, ...]


class Failure(Message):
    """A step raised. For kind `build`, the last of `builds` is the one that failed."""

    step: Annotated[int, Field(ge=0, le=4096)]
    kind: Literal["exception", "build", "out_of_memory", "missing_class", "import"]
    type_name: Name
    text: Text
    traceback: Text = ""
    builds: Annotated[tuple[setup.BuildEvent, ...], Many] = ()

    @model_validator(mode="after")
    def _build_failure_lists_a_build(self) -> Failure:
        if self.kind == "build" and not self.builds:
            raise ValueError("a failed build without a build")
        return self


class Evidence(Message):
    """A worker's report on one job: a result for each step up to the first that raised."""

    id: int
    results: Annotated[tuple[AnyResult, ...], Many] = ()
    failure: Failure | None = None
    peak_device_bytes: Annotated[int, Field(ge=0, le=1 << 50)] = 0


class MalformedMessage(ValueError):
    """The bytes are not a message of this protocol, or the evidence does not fit its job."""


_JOB = TypeAdapter(Job)
_EVIDENCE = TypeAdapter(Evidence)


def encode(message: Job | Evidence) -> bytes:
    """Return header and JSON document."""
    body = message.model_dump_json().encode()
    return HEADER.pack(len(body)) + body


def decode_job(body: bytes) -> Job:
    """Parse a job. Raises MalformedMessage."""
    try:
        return _JOB.validate_json(body)
    except ValidationError as error:
        raise MalformedMessage(_first_line(error)) from None


def decode_evidence(body: bytes) -> Evidence:
    """Parse an evidence. Raises MalformedMessage for anything but a well-formed, bounded one."""
    try:
        return _EVIDENCE.validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise MalformedMessage(_first_line(error)) from None


def check_answer(job: Job, evidence: Evidence) -> None:
    """Raise MalformedMessage if the evidence cannot be the answer to the job, however well-formed it is.

    There must be one result of the right class for each step, up to the one that is reported to have raised, and no
    report about tensors that were not requested. Readers of an evidence may rely on that.
    """
    if evidence.id != job.id:
        raise MalformedMessage(f"it answers job {evidence.id} instead of job {job.id}")
    failure, results = evidence.failure, evidence.results
    if failure is None and len(results) != len(job.steps):
        raise MalformedMessage(f"{len(results)} results for {len(job.steps)} steps")
    if failure is not None and not len(results) == failure.step < len(job.steps):
        raise MalformedMessage(f"step {failure.step} of {len(job.steps)} failed after {len(results)} results")
    for step, result in zip(job.steps, results, strict=False):
        if type(result) is not step.answer:
            raise MalformedMessage(f"a {type(step).__name__} answered with {type(result).__name__}")
        requested = step.requested_names()
        if requested is not None:
            allowed = {one_line(name[:NAME_CHARACTERS]) for name in requested}
            reported = result.reported_names()
            if len(set(reported)) != len(reported) or not set(reported) <= allowed:
                raise MalformedMessage(f"{type(result).__name__} about tensors that were not requested")
        if isinstance(step, passes.Export) and isinstance(result, passes.Exported):
            for source, order in result.orders.items():
                slot = step.items.get(source)  # none if a control character was replaced in the name
                if slot is None or sorted(order) != list(range(len(slot.shape))):
                    raise MalformedMessage(f"an order {order} of the dimensions of {source}")


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        if error.error_count() > MAX_LISTED_ERRORS:
            return f"{error.error_count()} errors"
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:500]
    return str(error)[:500]
