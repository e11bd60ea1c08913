"""Holds all processes of a sandbox still, so that they cannot slow down what is measured beside them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator

PASSES = 100
POLL_SECONDS = 50e-6
STANDSTILL_SECONDS = 0.05
"""A stopped process takes less than a millisecond to stand, unless it is deep in a driver's call."""
STILL = "TtZX"
"""States of stopped, traced and dead processes in /proc/PID/stat."""


class NeverStill(Exception):
    """Processes kept appearing faster than they could be stopped."""


@contextlib.contextmanager
def paused(members: Callable[[], set[int]]) -> Iterator[None]:
    """Stop processes and let them go on afterwards. Raises NeverStill.

    `members` are all whom one of them may have started, whoever is left of them now.
    """
    held = _stop(lambda _: _states(members()))
    try:
        yield
    finally:
        _signal(held, signal.SIGCONT)


@contextlib.contextmanager
def paused_tree(roots: set[int], likely: set[int]) -> Iterator[None]:
    """As `paused`, of processes and all their descendants, where nobody keeps account of them.

    `likely` is who was there last time, which saves one look at all processes; it is brought up to date. A pid
    namespace's first process, one of the roots, adopts every orphan, so that nobody in a sandbox is outside this tree.
    """
    held = _stop(lambda count: _tree(roots, likely | roots if likely and count == 0 else None))
    likely.clear()
    likely.update(held)
    try:
        yield
    finally:
        _signal(held, signal.SIGCONT)


def _stop(look: Callable[[int], dict[int, str]]) -> set[int]:
    """All pids, stopped. `look` gives them with their states; it is told how often it was asked before.

    One that runs on may fork, or continue another, until it is stopped too: done is when all that are known stand, and
    a look at them after that finds nobody new and nobody running.
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
    found = _stats(_all() if among is None else among)
    parents = {pid: parent for pid, (_, parent) in found.items()}
    tree = roots & found.keys()
    while True:
        children = {pid for pid, parent in parents.items() if parent in tree} - tree
        if not children:
            return {pid: found[pid][0] for pid in tree}
        tree |= children


def _states(pids: Iterable[int]) -> dict[int, str]:
    return {pid: state for pid, (state, _) in _stats(pids).items()}


def _stats(pids: Iterable[int]) -> dict[int, tuple[str, int]]:
    """Without those that are gone."""
    return {pid: found for pid in pids if (found := _stat(pid)) is not None}


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
