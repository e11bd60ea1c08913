"""Reads a trace of PyTorch's profiler: which kernels ran, how launched, for which operator.

The clocks of host and GPU need not agree in a trace, in a virtual machine least of all. So a kernel belongs to a part
of a pass by its place among the kernels: each part begins and ends with one kernel that does nothing but wait. It
belongs to an operator by the profiler's number of what launched it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grader.worker.checks.operators import MARK

RANGE = "grader::"
"""Begins the name of a range around a part of a pass."""
WAITS = "spin_kernel"
"""In the name of the kernel that begins and ends a part on the device, which `torch.cuda._sleep` launches."""
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what runs on the device."""


@dataclass(frozen=True)
class Ran:
    """One run of a kernel; on the CPU of an operator, without those that it calls."""

    name: str
    ms: float
    mark: int | None = None
    """Index of the operator that it ran for, where operators have ranges."""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


class _Ranges:
    """Disjoint ranges of time, each with a value."""

    def __init__(self, ranges: Iterable[tuple[float, float, Any]]) -> None:
        self._ranges = sorted(ranges, key=lambda one: one[0])
        self._starts = [start for start, _, _ in self._ranges]

    def at(self, moment: float) -> Any:
        """The value of the range that the moment is in; None if it is in none."""
        index = bisect_right(self._starts, moment) - 1
        if index < 0 or moment > self._ranges[index][1]:
            return None
        return self._ranges[index][2]

    def lengths(self, value: Any) -> float:
        """The length of all ranges of a value."""
        return sum(end - start for start, end, range_value in self._ranges if range_value == value)


class Trace:
    """The events of one trace. Times in it are microseconds."""

    def __init__(self, events: list[dict[str, Any]], parts: Sequence[str], *, on_gpu: bool) -> None:
        """`parts` are the parts of a pass in order; on a GPU, each is between two kernels that wait."""
        self.on_gpu = on_gpu
        complete = [event for event in events if event.get("ph") == "X"]
        self._categories = Counter(str(event.get("cat")) for event in complete)
        notes = [event for event in complete if event.get("cat") == "user_annotation"]
        self._parts = _Ranges(
            (*_span(event), event["name"].removeprefix(RANGE))
            for event in notes
            if event["name"].startswith(RANGE) and not event["name"].startswith(MARK)
        )
        marks = defaultdict(list)
        for event in notes:
            if event["name"].startswith(MARK):
                marks[event.get("tid")].append((*_span(event), int(event["name"].removeprefix(MARK))))
        self._marks = {thread: _Ranges(ranges) for thread, ranges in marks.items()}
        self._ran = list(self._on_device(complete, parts) if on_gpu else self._on_host(complete))

    def described(self) -> str:
        """The number of events of each category, such as `3 kernel, 20 cpu_op`."""
        return ", ".join(f"{count} {name}" for name, count in sorted(self._categories.items())) or "no event"

    def of(self, part: str) -> list[Ran]:
        """The events in the ranges of a part."""
        return [ran for name, ran in self._ran if name == part]

    def elapsed_ms(self, part: str) -> float:
        """Milliseconds of all ranges of a part."""
        return self._parts.lengths(part) / 1e3

    def _mark(self, thread: Any, moment: float) -> int | None:
        marks = self._marks.get(thread)
        found: int | None = None if marks is None else marks.at(moment)
        return found

    def _on_device(self, events: list[dict[str, Any]], parts: Sequence[str]) -> Iterable[tuple[str | None, Ran]]:
        operators = {
            event["args"]["External id"]: event
            for event in events
            if event.get("cat") == "cpu_op" and "External id" in event.get("args", {})
        }
        waited = 0
        for event in sorted(
            (entry for entry in events if entry.get("cat") in ON_DEVICE), key=lambda entry: entry["ts"]
        ):
            if WAITS in event["name"]:
                waited += 1
                continue
            if waited % 2 == 0:  # between two parts
                continue
            details = event.get("args", {})
            operator = operators.get(details.get("External id"))
            occupancy = details.get("est. achieved occupancy %")
            yield (
                parts[waited // 2 % len(parts)],
                Ran(
                    name=event["name"],
                    ms=max(float(event["dur"]), 0.0) / 1e3,
                    mark=None if operator is None else self._mark(operator.get("tid"), operator["ts"]),
                    grid=_extents(details.get("grid")),
                    block=_extents(details.get("block")),
                    registers=_count(details.get("registers per thread")),
                    shared_bytes=_count(details.get("shared memory")),
                    occupancy=None if occupancy is None else min(max(float(occupancy) / 100, 0.0), 1.0),
                ),
            )

    def _on_host(self, events: list[dict[str, Any]]) -> Iterable[tuple[str | None, Ran]]:
        threads = defaultdict(list)
        for event in events:
            if event.get("cat") == "cpu_op":
                threads[event.get("tid")].append(event)
        for thread, ops in threads.items():
            ops.sort(key=lambda event: (event["ts"], -event["dur"]))
            own = [float(event["dur"]) for event in ops]
            open_ones: list[int] = []
            for index, event in enumerate(ops):
                while open_ones and _span(ops[open_ones[-1]])[1] <= event["ts"]:
                    open_ones.pop()
                if open_ones:
                    own[open_ones[-1]] -= event["dur"]
                open_ones.append(index)
            for event, micros in zip(ops, own, strict=True):
                if event["name"].startswith(("autograd::", "torch::autograd::")):
                    continue
                ran = Ran(event["name"], max(micros, 0.0) / 1e3, self._mark(thread, event["ts"]))
                yield self._parts.at(event["ts"]), ran


def _span(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


def _extents(value: Any) -> tuple[int, int, int] | None:
    return (int(value[0]), int(value[1]), int(value[2])) if isinstance(value, list) and len(value) == 3 else None


def _count(value: Any) -> int | None:
    return None if value is None else max(int(value), 0)
