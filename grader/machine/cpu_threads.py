"""CPU threads: how many a worker computes with, and the referee on a single one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

MAX_CPU_THREADS = 8
"""More threads speed up few operators and make CPU times depend on what else the machine does."""


def thread_count() -> int:
    """CPU threads of each worker: the cores that this process may use, at most MAX_CPU_THREADS."""
    return min(MAX_CPU_THREADS, len(os.sched_getaffinity(0)))


@contextlib.contextmanager
def on_one_thread() -> Iterator[None]:
    """Run PyTorch on one thread, for many short operations.

    Threads that wait for each other would occupy cores that others need.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
