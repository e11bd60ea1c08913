"""Profiles a forward and a backward kernel by kernel: launches, times, and the operators behind them.

The passes run twice: as they are, several times, for the kernels and their times; and once more with a range around
every operator, which changes nothing on the device, for the operators' work. What ran equally often in both is joined.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from grader.protocol import MAX_LAUNCHES, Dispatched, Launched, Pass, Survey, Surveyed, TimedPart, Work
from grader.worker.checks.local_memory import local_bytes
from grader.worker.checks.operators import Operators
from grader.worker.checks.trace import RANGE, Ran, Trace
from grader.worker.conditions import no_collection
from grader.worker.registry import handles
from grader.worker.session import Session
from grader.worker.timing.clock import flush_caches, part

TROUBLE_CHARACTERS = 500
"""Longest error message in `Surveyed.trouble`."""
PARTS = ("forward", "backward")
NO_KERNEL = (
    "the profiler recorded no kernel: CUPTI does not report them on this machine, as in some virtual machines; profile "
    "on another one"
)
_NAME_CHARACTERS = 512


@handles(Survey)
def survey(session: Session, step: Survey) -> Surveyed:
    """Profile the passes; if the profiler fails, or the submission under it, report why."""
    try:
        return _surveyed(session, step)
    except Exception as error:
        return Surveyed(trouble=_described(error))


def _surveyed(session: Session, step: Survey) -> Surveyed:
    parts = PARTS if step.backward is not None else PARTS[:1]
    with no_collection():
        _run(session, step)  # the first call may do work that no later one does
        plain = _traced(session, parts, lambda: _run(session, step, step.passes))
        if plain.on_gpu and not any(plain.of(name) for name in parts):
            return Surveyed(trouble=f"{NO_KERNEL}; its trace has {plain.described()}")
        operators, trouble, counted = Operators(), "", None
        try:
            with operators:
                counted = _traced(session, parts, lambda: _run(session, step))
        except Exception as error:
            trouble = f"its operators could not be counted: {_described(error)}"[:TROUBLE_CHARACTERS]
    local = local_bytes(session) if session.device.type == "cuda" else {}
    found: dict[str, Any] = {"trouble": trouble}
    for name in parts:
        totals = _totals(plain.of(name))
        behind = _Behind() if counted is None else _behind(counted.of(name), operators.seen, on_gpu=plain.on_gpu)
        found[name] = _pass(plain, name, totals, behind, step.passes, local)
    return Surveyed(**found)


def _run(session: Session, step: Survey, passes: int = 1) -> None:
    """Passes with cold caches. Each part has a range of its own, and on a GPU a kernel that waits before and after."""
    parts: tuple[TimedPart | None, ...] = (step.forward, step.backward)
    for name, one in [*zip(PARTS, parts, strict=True)] * passes:
        if one is None:
            continue
        action = part(session, one)
        flush_caches(session.device, one.flush_bytes)
        with _between_waits(session), torch.autograd.profiler.record_function(f"{RANGE}{name}"):
            action()
            session.synchronize()


@contextlib.contextmanager
def _between_waits(session: Session) -> Iterator[None]:
    on_gpu = session.device.type == "cuda"
    session.synchronize()
    if on_gpu:
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
        session.synchronize()  # before what runs in other streams
    yield
    if on_gpu:
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
        session.synchronize()


def _traced(session: Session, parts: Sequence[str], action: Callable[[], object]) -> Trace:
    """The trace of what the action does."""
    on_gpu = session.device.type == "cuda"
    # torch.profiler.profile imports all of torch.compile first, which takes seconds.
    with torch.autograd.profiler.profile(use_device="cuda" if on_gpu else None) as profiler:
        action()
        session.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_bytes())["traceEvents"]
    if on_gpu and not any(event.get("cat") == "kernel" for event in events):
        events += _as_events(profiler.function_events or [])
    return Trace(events, parts, on_gpu=on_gpu)


def _as_events(functions: Iterable[Any]) -> list[dict[str, Any]]:
    """The kernels on the device by the profiler's own list, which has no launches."""
    return [
        {
            "ph": "X",
            "cat": "kernel",
            "name": one.name,
            "ts": one.time_range.start,
            "dur": one.time_range.elapsed_us(),
        }
        for one in functions
        if one.device_type.name != "CPU"
    ]


Key = tuple[str, Any, Any]
"""Name, grid and block."""


@dataclass
class _Total:
    first: Ran
    calls: int = 0
    ms: float = 0.0


def _totals(ran: Iterable[Ran]) -> dict[Key, _Total]:
    """Sums by kernel and way of launching it."""
    totals: dict[Key, _Total] = {}
    for one in ran:
        total = totals.setdefault((one.name, one.grid, one.block), _Total(one))
        total.calls += 1
        total.ms += one.ms
    return totals


@dataclass
class _Behind:
    """The operators of one pass and their kernels."""

    operators: tuple[Dispatched, ...] = ()
    alone: dict[Key, tuple[str, int, Work]] = field(default_factory=dict)
    """By kernel: operator, calls and work, where each call was the only kernel of that operator."""


def _behind(ran: Iterable[Ran], seen: list[tuple[str, Work]], *, on_gpu: bool) -> _Behind:
    """The operators by the ranges in which kernels were launched."""
    launched: dict[int, list[Ran]] = {}
    shared: set[Key] = set()
    for one in ran:
        if one.mark is not None:
            launched.setdefault(one.mark, []).append(one)
        elif on_gpu:  # else it is the operator above autograd, around the range
            shared.add((one.name, one.grid, one.block))
    calls: dict[str, list[tuple[list[Ran], Work]]] = {}
    alone: dict[Key, list[tuple[str, Work]]] = {}
    for index, kernels in launched.items():
        name, work = seen[index]
        if not work.operations:
            continue
        calls.setdefault(name, []).append((kernels, work))
        for one in kernels:
            key = one.name, one.grid, one.block
            alone.setdefault(key, []).append((name, work))
            if len(kernels) > 1:
                shared.add(key)
    found = [
        Dispatched(
            name=name[:_NAME_CHARACTERS],
            calls=len(dispatches),
            kernels=sum(len(kernels) for kernels, _ in dispatches),
            ms=sum(one.ms for kernels, _ in dispatches for one in kernels),
            work=_sum(work for _, work in dispatches),
        )
        for name, dispatches in calls.items()
    ]
    return _Behind(
        tuple(sorted(found, key=lambda one: -one.ms)[:MAX_LAUNCHES]),
        {
            key: (
                ", ".join(sorted({name for name, _ in dispatches})),
                len(dispatches),
                _sum(work for _, work in dispatches),
            )
            for key, dispatches in alone.items()
            if key not in shared
        },
    )


def _sum(works: Iterable[Work]) -> Work:
    total = dict.fromkeys(Work.model_fields, 0)
    for work in works:
        for name, value in work.model_dump().items():
            total[name] = max(total[name], value) if name == "scanned" else total[name] + value
    return Work(**total)


def _pass(
    trace: Trace, name: str, totals: dict[Key, _Total], behind: _Behind, passes: int, local: dict[str, int]
) -> Pass:
    order = sorted(totals, key=lambda key: -totals[key].ms)[:MAX_LAUNCHES]
    kernels = []
    for key in order:
        total, first = totals[key], totals[key].first
        operator, calls, work = behind.alone.get(key, ("", 0, None))
        joined = calls * passes == total.calls
        kernels.append(
            Launched(
                name=first.name[:_NAME_CHARACTERS],
                calls=total.calls / passes,
                ms=total.ms / passes,
                grid=first.grid,
                block=first.block,
                registers=first.registers,
                shared_bytes=first.shared_bytes,
                local_bytes=local.get(first.name),
                occupancy=first.occupancy,
                operator=operator[:_NAME_CHARACTERS] if joined else "",
                work=work if joined else None,
            )
        )
    device_ms = sum(total.ms for total in totals.values())
    return Pass(
        ms=(device_ms if trace.on_gpu else trace.elapsed_ms(name)) / passes,
        calls=sum(total.calls for total in totals.values()) / passes,
        kernels=tuple(kernels),
        operators=behind.operators,
    )


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:TROUBLE_CHARACTERS]
