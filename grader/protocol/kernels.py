"""The step that profiles a pass kernel by kernel, for a person to read. All of its answer is a claim."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grader.protocol.base import Message, Milliseconds, Name, Result, Step, Text
from grader.protocol.checks import Work
from grader.protocol.timing import TimedPart

__all__ = ["MAX_LAUNCHES", "Dispatched", "Launched", "Pass", "Survey", "Surveyed"]

MAX_LAUNCHES = 96
"""Most kernels, and most operators, of one pass that are listed."""
Count = Annotated[int, Field(ge=0, le=1 << 40)]
Extents = tuple[Count, Count, Count]


class Launched(Message):
    """A GPU kernel with the way it was launched; on the CPU a PyTorch operator. Figures are of one pass."""

    name: Name
    calls: Annotated[float, Field(gt=0, le=1e9)]
    """How often it ran in a pass, on average."""
    ms: Milliseconds
    """Time of all calls in a pass."""
    grid: Extents | None = None
    block: Extents | None = None
    registers: Count | None = None
    """Per thread."""
    shared_bytes: Count | None = None
    """Shared memory of a block, static and dynamic."""
    local_bytes: Count | None = None
    """Local memory of a thread: spilled registers, and arrays that do not fit into registers."""
    occupancy: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of a multiprocessor's warps that this launch can keep there, as CUPTI estimates it."""
    operator: Name = ""
    """The operator of PyTorch that launched it, where it was the only kernel of that operator."""
    work: Work | None = None
    """The work of that operator, of all calls; its tensors count as read or written once."""


class Dispatched(Message):
    """An operator of PyTorch in one pass, with all kernels that it launched."""

    name: Name
    calls: Annotated[int, Field(ge=1, le=1 << 40)]
    kernels: Count
    """Kernels that all calls launched."""
    ms: Milliseconds
    """Time of these kernels."""
    work: Work


class Pass(Message):
    """The kernels of a forward or of a backward, the longest first."""

    ms: Milliseconds
    """Time of all kernels of a pass, on average; on the CPU, that of the pass."""
    calls: Annotated[float, Field(ge=0, le=1e9)] = 0
    """Kernels that a pass launches, those left out here too."""
    kernels: Annotated[tuple[Launched, ...], Field(max_length=MAX_LAUNCHES, fail_fast=True)] = ()
    operators: Annotated[tuple[Dispatched, ...], Field(max_length=MAX_LAUNCHES, fail_fast=True)] = ()


class Surveyed(Result):
    """The passes that were profiled."""

    did: Literal["surveyed"] = "surveyed"
    forward: Pass | None = None
    backward: Pass | None = None
    trouble: Text = ""
    """Why something is absent, if the profiler or the submission failed under it."""


class Survey(Step):
    """Run a forward and a backward several times under PyTorch's profiler, and list their kernels.

    It is answered even if the profiler fails.
    """

    do: Literal["survey"] = "survey"
    answer = Surveyed
    forward: TimedPart
    backward: TimedPart | None = None
    passes: Annotated[int, Field(ge=1, le=64)] = 5
    """Passes with cold caches that the figures are means of."""
