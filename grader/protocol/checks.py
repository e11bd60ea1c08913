"""Steps that run a pass under observation: work counted, memory between redzones, kernels profiled."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grader.protocol.base import Many, Message, Milliseconds, Name, Result, Step, Text, Total
from grader.protocol.passes import Backward, Cotangent, Forward

__all__ = [
    "MAX_KERNELS",
    "Breach",
    "Count",
    "Counted",
    "Guard",
    "Guarded",
    "Kernel",
    "Profile",
    "Profiled",
    "Work",
]

MAX_KERNELS = 64
"""Most kernel names in a profile."""


class Work(Message):
    """The work of one pass of the reference. A multiplication and an addition are two operations."""

    operations: Total = 0
    """Calls of PyTorch operators other than views and allocations: at most about the number of launched kernels."""
    matmul: Total = 0
    """Floating-point operations in matrix products and attention."""
    convolution: Total = 0
    pointwise: Total = 0
    """Elements written by pointwise operators, counted as one operation each."""
    scanned: Total = 0
    """Elements of the longest running sum or product of floats."""
    read_bytes: Total = 0
    """Bytes read of inputs and parameters (forward) or grad_outputs (backward), each counted once."""
    written_bytes: Total = 0
    """Bytes of the returned tensors; shared or repeated memory is counted once."""


class Counted(Result):
    """The work of a forward and, if requested, a backward."""

    did: Literal["counted"] = "counted"
    forward: Work
    backward: Work | None = None
    draws: bool = False
    """The forward advanced one of PyTorch's default generators."""
    asserts: bool = False
    """The forward has an operator that refuses values out of a range, or makes indices of floats."""
    apart: tuple[int, ...] = ()
    """Integers that the forward compares others with, or treats apart as padding or an ignored index."""
    bounds: tuple[str, ...] = ()
    """Parameters and buffers that are bounds of a clamp, or the sorted edges of bins."""
    written: tuple[str, ...] = ()
    """Parameters that the forward writes to, as an embedding with max_norm does."""


class Count(Step):
    """Count the work of a forward and, with cotangents, a backward. Used on the reference's worker only."""

    do: Literal["count"] = "count"
    answer = Counted
    model: str
    inputs: str
    cotangents: dict[str, Cotangent] = Field(default_factory=dict)
    wrt: tuple[str, ...] = ()
    training: bool = True
    clone_inputs: bool = False


class Breach(Message):
    """A redzone that was written to."""

    name: Name
    """`output`, `input[0]`, a parameter, `grad:<operand>`, `cotangent:<output>`; for a temporary its operator."""
    side: Literal["before", "after"]
    nbytes: Annotated[int, Field(ge=1, le=1 << 40)]
    """Distance from the tensor to the farthest changed byte."""
    temporary: bool = False


class Guarded(Result):
    """Redzones that were written to. A submission that lies here can only harm itself."""

    did: Literal["guarded"] = "guarded"
    breaches: Annotated[tuple[Breach, ...], Many] = ()


class Guard(Step):
    """Run a forward, and a backward through it, with redzones around every tensor; report the breaches.

    Raises `TooLong` after `seconds`.

    Inputs, parameters and buffers are replaced by guarded copies meanwhile. `nan` fills redzones and uninitialised
    memory with NaN; `zero` fills them with zeros and reports no breach.
    """

    do: Literal["guard"] = "guard"
    answer = Guarded
    forward: Forward
    backward: Backward | None = None
    fill: Literal["nan", "zero"] = "nan"
    seconds: float


class Kernel(Message):
    """A GPU kernel; on the CPU a PyTorch operator, without the operators that it calls."""

    name: Name
    calls: Annotated[int, Field(ge=1, le=1 << 40)]
    ms: Milliseconds


class Profiled(Result):
    """The MAX_KERNELS kernels that took the most time: a claim."""

    did: Literal["profiled"] = "profiled"
    kernels: Annotated[tuple[Kernel, ...], Field(max_length=MAX_KERNELS, fail_fast=True)] = ()
    streams: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Number of device streams that kernels ran on."""
    graphs: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Number of CUDA graph launches."""
    trouble: Text = ""
    """Why the profile is empty, if the profiler failed."""


class Profile(Step):
    """Run a forward, and a backward through it, under PyTorch's profiler.

    It is answered even if the profiler fails.
    """

    do: Literal["profile"] = "profile"
    answer = Profiled
    forward: Forward
    backward: Backward | None = None
