"""The cores of this process where several grade on one machine: its own, and those for builds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Apart:
    """How several grading processes share the cores of a machine."""

    builds: frozenset[int]
    """Cores for builds of all processes."""
    sharers: int
    """How many processes build there."""
    threads: int
    """CPU threads of each worker."""


_apart: list[Apart] = []
"""Empty until `set_apart`."""


def set_apart(own: Iterable[int] | None, builds: Iterable[int], sharers: int, threads: int) -> None:
    """Keep this process to `own` cores, unless that is None, and its builds to those of all sharers.

    `threads` are those of each worker, as if it had all cores, so that its verdicts compare with others.
    """
    _apart[:] = [Apart(frozenset(builds), sharers, threads)]
    if own is not None:
        os.sched_setaffinity(0, own)


def build_cores() -> frozenset[int]:
    """The cores of a worker that builds; empty if it uses those of this process."""
    return _apart[0].builds if _apart else frozenset()


def builds_at_a_time() -> int:
    """How many builds this process runs at a time: one keeps two cores busy."""
    cores = len(_apart[0].builds) / _apart[0].sharers if _apart else len(os.sched_getaffinity(0))
    return max(1, int(cores / 2))


def threads_set() -> int | None:
    """CPU threads of each worker as `set_apart` fixed them."""
    return _apart[0].threads if _apart else None
