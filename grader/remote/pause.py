"""Holds all processes of a sandbox still, so that they cannot slow down what is measured beside them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

PASSES = 100
PASS_SECONDS = 0.0005
"""A stopped process takes this long to stand."""


class NeverStill(Exception):
    """Processes kept appearing faster than they could be stopped."""


@contextlib.contextmanager
def paused(root: int) -> Iterator[None]:
    """Stop a process and all its descendants, and let them go on afterwards. Raises NeverStill.

    A pid namespace's first process adopts every orphan, so that nobody in a sandbox is outside this tree.
    """
    held = _stop(root)
    try:
        yield
    finally:
        _signal(held, signal.SIGCONT)


def _stop(root: int) -> set[int]:
    """All pids of the tree, stopped.

    One that runs on may fork, or continue another, until it is stopped too: done is when two passes in a row find
    nobody new and nobody running.
    """
    known: set[int] = set()
    quiet = 0
    for _ in range(PASSES):
        tree = _tree(root)
        running = [pid for pid, state in tree.items() if state not in "TtZX"]
        quiet = quiet + 1 if not running and known >= tree.keys() else 0
        known |= tree.keys()
        if quiet == 2:
            return known
        _signal(tree, signal.SIGSTOP)
        time.sleep(PASS_SECONDS)
    _signal(known, signal.SIGCONT)
    raise NeverStill("keeps starting processes faster than they can be stopped")


def _signal(pids: set[int] | dict[int, str], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _tree(root: int) -> dict[int, str]:
    """State by pid, of a process and its descendants."""
    parents: dict[int, int] = {}
    states: dict[int, str] = {}
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        with contextlib.suppress(OSError):
            # The command's name, in parentheses, may itself hold any bytes.
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            states[pid], parents[pid] = fields[0].decode(), int(fields[1])
    found = {root} & states.keys()
    while True:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        if not children:
            return {pid: states[pid] for pid in found}
        found |= children


def _read(path: str) -> bytes:
    """By system calls alone: this is done for every process, several times for each timed sample."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
