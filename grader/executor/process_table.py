"""Looks up processes in /proc: their states, their descendants and their CPU time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

STILL = "TtZX"
"""States of stopped, traced and dead threads in /proc/PID/task/TID/stat."""
CPU_CLOCK = 2
"""CPUCLOCK_SCHED of a process, all threads together, in linux/posix-timers.h."""


def tree(roots: set[int], among: set[int] | None = None) -> dict[int, str]:
    """Return pid to state of the roots and their descendants, among all processes or the given ones."""
    stats = _stats(_all() if among is None else among)
    parents = {pid: parent for pid, (_, parent) in stats.items()}
    found = roots & stats.keys()
    while True:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        if not children:
            return {pid: stats[pid][0] for pid in found}
        found |= children


def states(pids: Iterable[int]) -> dict[int, str]:
    """Return the states of processes by pid, without those that have ended."""
    return {pid: state for pid, (state, _) in _stats(pids).items()}


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    stat = _read_stat(f"/proc/{pid}/stat")
    return stat is not None and stat[0] not in "ZX"


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """Return the CPU time of processes, with all their threads, by pid; without processes that have ended."""
    seconds = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            seconds[pid] = time.clock_gettime(~pid << 3 | CPU_CLOCK)
    return seconds


def _stats(pids: Iterable[int]) -> dict[int, tuple[str, int]]:
    """Return state and parent by pid, without processes that have ended."""
    return {pid: stat for pid in pids if (stat := _stat(pid)) is not None}


def _all() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _stat(pid: int) -> tuple[str, int] | None:
    """Return a process's state and its parent's pid; None if it has ended.

    The state is that of a thread that is not still, if there is one: the first thread of a process may be stopped, or
    have ended, while another one is in a long system call.
    """
    own = _read_stat(f"/proc/{pid}/stat")
    if own is None or own[0] not in STILL:
        return own
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            stat = _read_stat(f"{thread}/stat")
            if stat is not None and stat[0] not in STILL:
                return stat[0], own[1]
    return own


def _read_stat(path: str) -> tuple[str, int] | None:
    """Read by system calls for speed: this runs for every process, several times for each timed sample."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # The command's name, in parentheses, may contain any bytes.
            fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
        finally:
            os.close(descriptor)
        return fields[0].decode(), int(fields[1])
    return None
