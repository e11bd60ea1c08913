"""Stops all processes of a sandbox, so that they cannot slow down a measurement outside of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator

PASSES = 100
"""Most looks at the processes before they count as `NeverStill`."""
POLL_SECONDS = 50e-6
"""Between looks at one process."""
STANDSTILL_SECONDS = 0.05
"""Longest wait in one pass: a process stops within a millisecond, unless it is in a driver's call."""
STILL = "TtZX"
"""States of stopped, traced and dead processes in /proc/PID/stat."""


class NeverStill(Exception):
    """Processes kept appearing faster than they could be stopped."""


@contextlib.contextmanager
def paused(members: Callable[[], set[int]]) -> Iterator[None]:
    """Stop processes during the block. Raises NeverStill.

    `members` returns all present processes of a group that a process cannot leave by forking.
    """
    stopped = _stop(lambda _: _states(members()))
    try:
        yield
    finally:
        _signal(stopped, signal.SIGCONT)


@contextlib.contextmanager
def paused_tree(roots: set[int], likely: set[int]) -> Iterator[None]:
    """Like `paused`, for processes and all their descendants, without a cgroup that lists them.

    `likely` are the pids of the last time, which saves one look at all processes; it is updated. The first process of a
    pid namespace, one of the roots, adopts every orphan, so every process of the sandbox is in this tree.
    """
    stopped = _stop(lambda count: _tree(roots, likely | roots if likely and count == 0 else None))
    likely.clear()
    likely.update(stopped)
    try:
        yield
    finally:
        _signal(stopped, signal.SIGCONT)


def _stop(look: Callable[[int], dict[int, str]]) -> set[int]:
    """Stop all processes and return their pids. `look(count)` returns pid to state, for the count-th time.

    A process that still runs may fork, or continue another one. So the loop ends when all known processes are stopped
    and the next look finds no new and no running one.
    """
    known: set[int] = set()
    for count in range(PASSES):
        tree = look(count)
        running = [pid for pid, state in tree.items() if state not in STILL]
        if not running and known >= tree.keys():
            return known
        known |= tree.keys()
        _signal(known, signal.SIGSTOP)
        _await_standstill(known)
    _signal(known, signal.SIGCONT)
    raise NeverStill("keeps starting processes faster than they can be stopped")


def _await_standstill(pids: Iterable[int]) -> None:
    """Wait until all are stopped, or STANDSTILL_SECONDS."""
    deadline = time.monotonic() + STANDSTILL_SECONDS
    for pid in pids:
        while time.monotonic() < deadline:
            stat = _stat(pid)
            if stat is None or stat[0] in STILL:
                break
            time.sleep(POLL_SECONDS)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _tree(roots: set[int], among: set[int] | None = None) -> dict[int, str]:
    """Return pid to state of the roots and their descendants, among all processes or the given ones."""
    stats = _stats(_all() if among is None else among)
    parents = {pid: parent for pid, (_, parent) in stats.items()}
    tree = roots & stats.keys()
    while True:
        children = {pid for pid, parent in parents.items() if parent in tree} - tree
        if not children:
            return {pid: stats[pid][0] for pid in tree}
        tree |= children


def _states(pids: Iterable[int]) -> dict[int, str]:
    return {pid: state for pid, (state, _) in _stats(pids).items()}


def _stats(pids: Iterable[int]) -> dict[int, tuple[str, int]]:
    """Return state and parent by pid, without processes that have ended."""
    return {pid: stat for pid in pids if (stat := _stat(pid)) is not None}


def _all() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _stat(pid: int) -> tuple[str, int] | None:
    """Return a process's state and its parent's pid; None if it has ended.

    Reads by system calls for speed: it runs for every process, several times for each timed sample.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            # The command's name, in parentheses, may contain any bytes.
            fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
        finally:
            os.close(descriptor)
        return fields[0].decode(), int(fields[1])
    return None
