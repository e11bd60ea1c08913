"""The present work of graders, in a line each: workers, rate, time left, failures."""

from __future__ import annotations

from collections import Counter

from db.at_work import AtWork
from db.presence import Work, WorkerState
from grader.report.console import one_line


def about(work: Work) -> str:
    """`2 GPUs, 3.2 a minute, 12 min left, 1 failed`."""
    parts = [_workers(work.workers), _rate(work.rate), time_left(work)]
    return ", ".join(part for part in (*parts, f"{work.failed} failed" if work.failed else "") if part)


def time_left(work: Work) -> str:
    """About how long what waits will take; empty if that is not known."""
    if not work.rate or work.left is None:
        return ""
    seconds = work.left / work.rate
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} left"
    return f"{seconds:.0f} s left"


def status_lines(graders: list[AtWork]) -> list[str]:
    """A line for each grader, and below it one for each of its workers."""
    lines = []
    for one in graders:
        place = f"process {one.process}" if one.here else "on another machine"
        urgent = f", priority {one.priority}" if one.priority else ""
        work = one.work
        doing = f"{work.graded} graded, {waiting(work)}{about(work)}" if work else "starting"
        lines.append(f"run {one.run} ({place}{urgent}): {doing.removesuffix(', ')}: {one_line(one.command)}")
        lines += [f"  {worker_line(worker)}" for worker in (work.workers if work else ())]
    return lines


def worker_line(worker: WorkerState) -> str:
    """`GPU 0: ready, 12 graded, ann/conv2d under way`."""
    doing = f", {worker.under_way} under way" if worker.under_way else ""
    reason = f" ({worker.reason})" if worker.reason else ""
    return one_line(f"{worker.name}: {worker.state}{reason}, {worker.graded} graded{doing}")


def waiting(work: Work) -> str:
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
