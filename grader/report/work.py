"""The present work of graders, in a line each: workers, rate, time left, failures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from rich.text import Text

from db.presence import RunProgress, WorkerState
from db.runs import AtWork
from grader.report.console import one_line
from grader.report.listing import Listing


def about(work: RunProgress) -> str:
    """`2 GPUs, 3.2 a minute, 12 min left, 1 failed`."""
    parts = [_workers(work.workers), _rate(work.rate), time_left(work)]
    return ", ".join(part for part in (*parts, f"{work.failed} failed" if work.failed else "") if part)


def time_left(work: RunProgress) -> str:
    """About how long what waits will take; empty if that is not known."""
    if not work.rate or work.left is None:
        return ""
    seconds = work.left / work.rate
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} left"
    return f"{seconds:.0f} s left"


def _lines(graders: Iterable[AtWork]) -> Iterator[Text]:
    """A line for each grader, and below it one for each of its workers."""
    for one in graders:
        urgent = f", priority {one.priority}" if one.priority else ""
        work = one.work
        doing = f"{work.graded} graded, {waiting(work)}{about(work)}" if work else "starting"
        yield Text(f"run {one.run} ({_place(one)}{urgent}): {doing.removesuffix(', ')}: {one_line(one.command)}")
        yield from (Text(f"  {worker_line(worker)}") for worker in (work.workers if work else ()))


def _cells(one: AtWork) -> list[str]:
    work = one.work or RunProgress(graded=0, failed=0)
    figures = (one.priority, work.graded, work.failed, work.rate, work.left)
    return [
        str(one.run),
        _place(one),
        *("" if figure is None else f"{figure:g}" for figure in figures),
        "; ".join(map(worker_line, work.workers)),
        one.command,
    ]


def _place(one: AtWork) -> str:
    return f"process {one.process}" if one.here else "on another machine"


def worker_line(worker: WorkerState) -> str:
    """`GPU 0: ready, 12 graded, ann/conv2d under way`."""
    doing = f", {worker.under_way} under way" if worker.under_way else ""
    reason = f" ({worker.reason})" if worker.reason else ""
    return one_line(f"{worker.name}: {worker.state}{reason}, {worker.graded} graded{doing}")


def waiting(work: RunProgress) -> str:
    """`12 waiting, `, or nothing."""
    return f"{work.left} waiting, " if work.left else ""


def _rate(rate: float | None) -> str:
    if rate is None:
        return ""
    return f"{rate:.1f} a second" if rate >= 1 else f"{60 * rate:.1f} a minute"


def _workers(workers: tuple[WorkerState, ...]) -> str:
    if not workers:
        return ""
    lost = Counter(worker.state for worker in workers)["set aside"]
    what = "GPU" if any("GPU" in worker.name for worker in workers) else "worker"
    count = f"{len(workers)} {what}" + ("" if len(workers) == 1 else "s")
    return f"{count} ({lost} set aside)" if lost else count


AT_WORK: Listing[AtWork] = Listing(
    columns=("run", "process", "priority", "graded", "failed", "a second", "waiting", "workers", "command"),
    cells=_cells,
    json=lambda one: json.dumps({**asdict(one), "work": one.work.model_dump() if one.work else None}),
    tables=_lines,
)
