"""Prepares a CPU for a timed call: pages mapped, caches cold, the main thread on the right cores."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

import torch

MADV_POPULATE_WRITE = 23
"""From linux/mman.h; since Linux 5.14."""
CORES = os.sched_getaffinity(0)
"""The cores that this process may use."""


class HostMemory:
    """The block that flushes the CPU's caches, and the heap; a process that is never timed has neither."""

    def __init__(self) -> None:
        self._filler: torch.Tensor | None = None
        self._heap = Heap()

    def flush(self, nbytes: int) -> None:
        """Write a block through the caches and map new heap pages."""
        if self._filler is None or self._filler.numel() < nbytes:
            self._filler = torch.empty(nbytes, dtype=torch.uint8)  # kept, since new pages take longer
        self._filler[:nbytes].fill_(1)
        self._heap.own()


class Heap:
    """Maps all pages of the C library's heap before they are used.

    The heap grows by many pages at once, and a copied worker shares its pages with the process it was copied from. A
    page is mapped or copied when it is first written to; a huge page takes milliseconds, in whichever call that is.
    """

    def __init__(self) -> None:
        self._owned_until = 0

    def own(self) -> None:
        """Map every page that was added since the last call.

        Does nothing where the kernel does not support it.
        """
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_size_t, [ctypes.c_ssize_t]
            libc.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
            end = libc.sbrk(0) & -mmap.PAGESIZE
            start = self._owned_until or _heap_start()
            if start < end and libc.madvise(start, end - start, MADV_POPULATE_WRITE) == 0:
                self._owned_until = end


def use_all_cores() -> None:
    """Let the main thread run on all cores, which the threads and processes that it starts inherit."""
    os.sched_setaffinity(0, CORES)


def use_first_core() -> None:
    """Bind the main thread to the first core, where it takes turns with the referee.

    OpenMP threads wait by spinning, for milliseconds, and a thread that wakes up on their core waits for the
    scheduler's next tick. Not before OpenMP has started its threads, which would inherit the binding.
    """
    os.sched_setaffinity(0, {min(CORES)})


def _heap_start() -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[heap]"):
            return int(line.partition("-")[0], 16)
    raise OSError("no heap")
