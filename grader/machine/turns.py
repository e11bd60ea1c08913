"""Turns among the grading processes of a machine: while one times on the CPU, the others wait.

Every stage of a grading holds a shared lock; timing on the CPU holds it alone. A process that wants it alone comes
before those that ask later. The kernel releases the locks of a process that ends. Processes that have not joined take
no turns.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

_joined: list[str] = []


def join(path: str) -> None:
    """Take turns with all processes that join with this file, from now on."""
    _joined[:] = [path]


def shared() -> AbstractContextManager[None]:
    """Run beside others, and never while one runs alone. Must not be nested, in any thread."""
    return _locked(fcntl.LOCK_SH) if _joined else nullcontext()


def alone() -> AbstractContextManager[None]:
    """Run while all others wait."""
    return _locked(fcntl.LOCK_EX) if _joined else nullcontext()


@contextmanager
def _locked(kind: int) -> Iterator[None]:
    with _open(f"{_joined[0]}.next") as door, _open(_joined[0]) as lock:
        fcntl.flock(door, fcntl.LOCK_EX)  # held while waiting: a later process waits behind it
        fcntl.flock(lock, kind)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


@contextmanager
def _open(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
