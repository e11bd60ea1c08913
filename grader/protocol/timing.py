"""Steps of a measurement: cold caches, calls timed by the worker or on the GPU's timeline, peaks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grader.protocol.base import Milliseconds, Rate, Result, Slot, Step
from grader.protocol.passes import Cotangent

__all__ = [
    "Await",
    "Elapsed",
    "Flush",
    "Gauge",
    "Gauged",
    "Queue",
    "Signal",
    "Time",
    "Timed",
    "TimedPart",
]


class Flush(Step):
    """Write scratch memory twice and free it: what follows starts with cold caches at new addresses."""

    do: Literal["flush"] = "flush"
    nbytes: int
    spacers: tuple[int, ...] = ()
    """Sizes in bytes of blocks that are allocated first, and kept until the next `Flush` or a `Drop` that empties the
    cache."""


class TimedPart(Step):
    """One part of a call; its results stay under their keys for `Export`.

    "inference" is a forward without a graph, "forward" one with a graph, "backward" differentiates the latter.
    """

    part: Literal["inference", "forward", "backward"]
    model: str
    inputs: str
    tape: str
    grads: str
    cotangents: dict[str, Cotangent] = Field(default_factory=dict)
    wrt: tuple[str, ...] = ()
    training: bool = True
    tf32: bool = True
    flush_bytes: int = 0
    """Size of a `Flush` right before the call."""
    seed: int = 0
    clone_inputs: bool = False


class Timed(Result):
    """Time of one part by the worker's own clock: a claim."""

    did: Literal["timed"] = "timed"
    ms: Milliseconds


class Time(TimedPart):
    """Time one part of a call by the worker's own clock."""

    do: Literal["time"] = "time"
    answer = Timed
    limit_seconds: float | None = None
    """The call raises after so long, and the worker goes on: a search for kernels can be ended, and kept as it is."""


class Await(Step):
    """Make the GPU wait until the referee writes `token` to `flag`, in the outbox."""

    do: Literal["await"] = "await"
    flag: Slot
    token: int
    idle_kernels: int
    """Number of empty kernels to launch first, which changes the position of what follows among launches."""


class Queue(TimedPart):
    """Queue one part of a call without waiting for it; `Elapsed` reports its time."""

    do: Literal["queue"] = "queue"
    alone: bool = False
    """Let the GPU become idle before and after the part, so that neither side's launches hide behind other work."""


class Signal(Step):
    """Make the GPU write `token` to `flag`, in the outbox, when all work queued so far is done."""

    do: Literal["signal"] = "signal"
    flag: Slot
    token: int


class Elapsed(Step):
    """Wait for the queued part, and report how long it took by the worker's own clock."""

    do: Literal["elapsed"] = "elapsed"
    answer = Timed


class Gauged(Result):
    """The best rates that were measured."""

    did: Literal["gauged"] = "gauged"
    float32: Rate
    """Floating-point operations per second in float32 matrix products, in full precision."""
    tf32: Rate
    """The same with TensorFloat-32 allowed; about equal on a device without it."""
    bytes: Rate
    """Bytes per second read and written by a copy, or read by a sum."""
    narrow: Rate | None = None
    """The same as `float32` in the narrow type of the step."""


class Gauge(Step):
    """Measure the device's peak rates in matrix products and memory traffic.

    Used on the reference's worker only.
    """

    do: Literal["gauge"] = "gauge"
    answer = Gauged
    device: str
    narrow: Literal["bfloat16", "float16"] | None = None
    """Measure matrix products of this type too."""
