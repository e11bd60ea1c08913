"""Holds all processes of a sandbox still, so that they cannot slow down what is measured beside them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator

PASSES = 100
POLL_SECONDS = 50e-6
STANDSTILL_SECONDS = 0.05
"""A stopped process takes less than a millisecond to stand, unless it is deep in a driver's call."""
STILL = "TtZX"
"""States of stopped, traced and dead processes in /proc/PID/stat."""


class NeverStill(Exception):
    """Processes kept appearing faster than they could be stopped."""


@contextlib.contextmanager
def paused(roots: set[int], likely: set[int]) -> Iterator[None]:
    """Stop processes and all their descendants, and let them go on afterwards. Raises NeverStill.

    `likely` is who was there last time, which saves one look at all processes; it is brought up to date. A pid
    namespace's first process, one of the roots, adopts every orphan, so that nobody in a sandbox is outside this tree.
    """
    held = _stop(roots, likely)
    likely.clear()
    likely.update(held)
    try:
        yield
    finally:
        _signal(held, signal.SIGCONT)


def _stop(roots: set[int], likely: set[int]) -> set[int]:
    """All pids of the tree, stopped.

    One that runs on may fork, or continue another, until it is stopped too: done is when all that are known stand, and
    a look at the tree after that finds nobody new and nobody running.
    """
    known: set[int] = set()
    for count in range(PASSES):
        tree = _tree(roots, likely | roots if likely and count == 0 else None)
        running = [pid for pid, state in tree.items() if state not in STILL]
        if not running and known >= tree.keys():
            return known
        known |= tree.keys()
        _signal(known, signal.SIGSTOP)
        _await_standstill(known)
    _signal(known, signal.SIGCONT)
    raise NeverStill("keeps starting processes faster than they can be stopped")


def _await_standstill(pids: Iterable[int]) -> None:
    """Until all stand, or so long that another look is due."""
    deadline = time.monotonic() + STANDSTILL_SECONDS
    for pid in pids:
        while time.monotonic() < deadline:
            found = _stat(pid)
            if found is None or found[0] in STILL:
                break
            time.sleep(POLL_SECONDS)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _tree(roots: set[int], among: set[int] | None = None) -> dict[int, str]:
    """State by pid, of processes and their descendants; of all processes, or of those among which they are sought."""
    parents: dict[int, int] = {}
    states: dict[int, str] = {}
    for pid in _all() if among is None else among:
        found = _stat(pid)
        if found is not None:
            states[pid], parents[pid] = found
    tree = roots & states.keys()
    while True:
        children = {pid for pid, parent in parents.items() if parent in tree} - tree
        if not children:
            return {pid: states[pid] for pid in tree}
        tree |= children


def _all() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _stat(pid: int) -> tuple[str, int] | None:
    """Its state and its parent's pid; None for one that is gone.

    Read by system calls alone: this is done for every process, several times for each timed sample.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            # The command's name, in parentheses, may itself hold any bytes.
            fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
        finally:
            os.close(descriptor)
        return fields[0].decode(), int(fields[1])
    return None
