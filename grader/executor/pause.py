"""Stops a sandbox's processes while something outside is measured, and checks that they did nothing.

Where a cgroup of version 2 can be written, the kernel's freezer stops them: nothing inside can undo that. Elsewhere
SIGSTOP does, and the sandbox's system call filter refuses what would make the kernel send a SIGCONT later.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from grader.executor.process_table import STILL, cpu_seconds, is_alive, states, tree
from grader.sandbox import SandboxedProcess

PASSES = 100
"""Most looks at the processes before they count as `NeverStill`."""
POLL_SECONDS = 50e-6
"""Between looks at one process."""
STANDSTILL_SECONDS = 0.05
"""Longest wait in one pass: a process stops within a millisecond, unless it is in a driver's call."""
IDLE_SECONDS = 1e-4
"""CPU time of stopped processes beyond which they ran. It does not grow, but for a frozen thread's few microseconds
with a signal that reaches it."""
SETTLED_SECONDS = 5e-4
"""Time for which the CPU time of stopped processes must stay the same to count as their time before. A cgroup counts a
thread's last share when it leaves its core, which a virtual machine may delay. A choice."""

LATE_SECONDS = 4e-3
"""CPU time of stopped processes that is forgiven once: a tick at 250 Hz. On a busy virtual machine, 1.8 ms
were counted after the time had settled, in one of some 200 honest gradings. Once is too little to gain from."""

_T = TypeVar("_T")
Members = Callable[[], Iterable[int]]
"""Returns the pids of all present processes of a group that a process cannot leave by forking."""


class NeverStill(Exception):
    """Processes kept appearing faster than they could be stopped, or ran although they were stopped."""


class Idleness:
    """Judges the CPU time of one sandbox's stopped processes; what is counted late is forgiven once."""

    def __init__(self) -> None:
        self._forgives = True

    def judge(self, seconds: float) -> None:
        """Raise NeverStill if processes that used so many seconds ran."""
        if seconds <= IDLE_SECONDS:
            return
        if not self._forgives or seconds > LATE_SECONDS:
            raise NeverStill(f"used the CPU for {1e3 * seconds:.2g} ms while it was stopped")
        self._forgives = False


@contextlib.contextmanager
def stopped(process: SandboxedProcess, seen: set[int], idleness: Idleness, *, untrusted: bool) -> Iterator[None]:
    """Stop all processes of a sandbox by the best means that it has.

    `seen` keeps their pids where there is no cgroup. Raises NeverStill; for `untrusted` ones also if they used the CPU
    meanwhile.
    """
    roots, group, freezer = process.roots, process.members, process.freezer
    if freezer is not None:
        stopping, used = frozen(freezer), idle_group(freezer, idleness)
    elif group is not None:
        stopping, used = paused(group), idle(group, group, idleness)
    else:
        stopping, used = paused_tree(roots, seen), idle(lambda: seen, lambda: tree(roots), idleness)
    # Only when they go on does the first process of a namespace see that one it carries was killed, and end.
    with unless_ended(roots), stopping, used if untrusted else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def frozen(group: Path) -> Iterator[None]:
    """Stop the processes of a cgroup of version 2 during the block. Raises NeverStill."""
    try:
        _write(group, b"1")
        _await_frozen(group)
        yield
    finally:
        _write(group, b"0")


@contextlib.contextmanager
def paused(members: Members) -> Iterator[None]:
    """Stop processes by SIGSTOP during the block. Raises NeverStill."""
    pids = _stop(lambda _: states(members()))
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


@contextlib.contextmanager
def paused_tree(roots: set[int], likely: set[int]) -> Iterator[None]:
    """Like `paused`, for processes and all their descendants, without a cgroup that lists them.

    `likely` are the pids of the last time, which saves one look at all processes; it is updated. The first process of a
    pid namespace, one of the roots, adopts every orphan, so every process of the sandbox is in this tree.
    """
    pids = _stop(lambda count: tree(roots, likely | roots if likely and count == 0 else None))
    likely.clear()
    likely.update(pids)
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


@contextlib.contextmanager
def idle_group(group: Path, idleness: Idleness) -> Iterator[None]:
    """Raise NeverStill after the block if processes of a cgroup of version 2 used the CPU meanwhile.

    The group counts what has ended too: a signal that is fatal ends frozen processes, one that a timer sends included.
    """
    before = _settled(lambda: _group_seconds(group))
    yield
    idleness.judge(_group_seconds(group) - before)


@contextlib.contextmanager
def idle(stopped: Members, members: Members, idleness: Idleness) -> Iterator[None]:
    """Raise NeverStill after the block if stopped processes used the CPU meanwhile, or have ended.

    A process that is among the members then and was not stopped counts with all that it used.
    """
    before = _settled(lambda: cpu_seconds(stopped()))
    yield
    after = cpu_seconds(members())
    if before.keys() - after.keys():
        raise NeverStill("had a process that ended while it was stopped")
    idleness.judge(sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items()))


@contextlib.contextmanager
def unless_ended(roots: set[int]) -> Iterator[None]:
    """Ignore NeverStill if a process that carries the others is ending: something outside killed it.

    What that looks like from the socket says more about the cause. To end takes CPU time itself.
    """
    try:
        yield
    except NeverStill:
        deadline = time.monotonic() + 20 * STANDSTILL_SECONDS
        while all(map(is_alive, roots)):
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)


def _await_frozen(group: Path) -> None:
    deadline = time.monotonic() + PASSES * STANDSTILL_SECONDS
    with _if_present():
        while b"frozen 1" not in (group / "cgroup.events").read_bytes():
            if time.monotonic() > deadline:
                raise NeverStill("has a process that does not stop")
            time.sleep(POLL_SECONDS)


def _write(group: Path, value: bytes) -> None:
    with _if_present():
        (group / "cgroup.freeze").write_bytes(value)


@contextlib.contextmanager
def _if_present() -> Iterator[None]:
    """Accept that the group is gone: its sandbox has ended."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def _settled(read: Callable[[], _T]) -> _T:
    """Return CPU seconds once they no longer grow.

    A thread is counted as stopped shortly before it leaves its core, and a virtual machine may be held up in between.
    """
    seconds, since = read(), time.monotonic()
    deadline = since + PASSES * STANDSTILL_SECONDS
    while time.monotonic() < min(since + SETTLED_SECONDS, deadline):
        time.sleep(POLL_SECONDS)
        earlier, seconds = seconds, read()
        if seconds != earlier:
            since = time.monotonic()
    return seconds


def _group_seconds(group: Path) -> float:
    """Return the CPU time of all that ever ran in a cgroup of version 2; 0 if it is gone."""
    fields = ["usage_usec", "0"]
    with _if_present():
        fields = (group / "cpu.stat").read_text().split()
    return int(fields[fields.index("usage_usec") + 1]) / 1e6


def _stop(look: Callable[[int], dict[int, str]]) -> set[int]:
    """Stop all processes and return their pids. `look(count)` returns pid to state, for the count-th time.

    A process that still runs may fork, or continue another one. So the loop ends when all known processes are stopped
    and the next look finds no new and no running one.
    """
    known: set[int] = set()
    for count in range(PASSES):
        present = look(count)
        running = [pid for pid, state in present.items() if state not in STILL]
        if not running and known >= present.keys():
            return known
        known |= present.keys()
        _signal(known, signal.SIGSTOP)
        _await_standstill(known)
    _signal(known, signal.SIGCONT)
    raise NeverStill("keeps starting processes faster than they can be stopped")


def _await_standstill(pids: Iterable[int]) -> None:
    """Wait until all are stopped, or STANDSTILL_SECONDS."""
    deadline = time.monotonic() + STANDSTILL_SECONDS
    for pid in pids:
        while time.monotonic() < deadline and any(state not in STILL for state in states([pid]).values()):
            time.sleep(POLL_SECONDS)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
