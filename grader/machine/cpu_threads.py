"""The number of CPU threads that a worker computes with."""

from __future__ import annotations

import os

MAX_CPU_THREADS = 8
"""More threads speed up few operators and make CPU times depend on what else the machine does."""


def thread_count() -> int:
    """CPU threads of each worker: the cores that this process may use, at most MAX_CPU_THREADS."""
    return min(MAX_CPU_THREADS, len(os.sched_getaffinity(0)))
