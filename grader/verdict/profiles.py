"""A submission and its reference, kernel by kernel, as the profiler in their own processes saw them.

A profile judges nothing. The process that reports it belongs to the submission, which could forge every figure of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from grader.verdict.models import Device
from grader.verdict.precision import Precision
from grader.verdict.value import Value

CLAIM = (
    "Times, launches and operators are a claim of the process that ran the submission: it could forge them. "
    "No status and no rank depends on them."
)
COUNTED = (
    "Bytes and operations of a kernel are those of the PyTorch operator that launched it and no other kernel: its "
    "tensors, read or written once. Of a custom kernel they are not known. Those of a pass are the reference's: "
    "inputs, parameters and grad_outputs read once, results written once, operations of its operators."
)


class Amount(Value):
    """Work: bytes moved, and operations on floats; a multiplication and an addition are two."""

    bytes: int
    operations: int
    bound_ms: float | None = None
    """Least milliseconds for it by the roofline."""


class KernelLine(Value):
    """A GPU kernel with its launch; on the CPU a PyTorch operator. Figures are of one pass."""

    name: str
    calls: float
    ms: float
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    """Per thread."""
    shared_bytes: int | None = None
    """Per block, static and dynamic."""
    local_bytes: int | None = None
    """Per thread: spilled registers and large arrays."""
    occupancy: float | None = None
    """Share of a multiprocessor's warps, as CUPTI estimates it."""
    operator: str = ""
    work: Amount | None = None
    """None where it is not known."""


class OperatorLine(Value):
    """A PyTorch operator of one pass with all kernels that it launched."""

    name: str
    calls: int
    kernels: int
    ms: float
    work: Amount


class PassLines(Value):
    """The kernels of a forward or of a backward, the longest first."""

    ms: float
    """Time of all kernels; on the CPU, that of the pass."""
    calls: float
    work: Amount | None = None
    """Work that no implementation of this pass can avoid."""
    kernels: tuple[KernelLine, ...] = ()
    operators: tuple[OperatorLine, ...] = ()


class SideProfile(Value):
    """The submission or the reference."""

    forward: PassLines | None = None
    backward: PassLines | None = None
    trouble: str = ""
    """Why something is absent."""


class PeakRates(Value):
    """The device's measured peaks: bytes and operations per second."""

    bytes: float
    float32: float
    tf32: float
    narrow: float | None = None
    """In products of the narrowest type among the operands, if that has 16 bits or less."""


class Profile(Value):
    """Both sides of one profile, on the same inputs."""

    submission: str
    problem: str
    device: Device
    device_name: str
    precision: Precision = Precision.FP32
    variant: str
    source_hash: str
    problem_hash: str
    created_at: datetime
    grader_version: str
    trust: Literal["claim"] = "claim"
    """Every profile is one."""
    peaks: PeakRates | None = None
    candidate: SideProfile
    reference: SideProfile
