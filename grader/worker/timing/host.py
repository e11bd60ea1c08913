"""Prepares a CPU for a timed call: pages mapped, caches cold, the main thread on the right cores."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os

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
            self._filler = _huge_pages(nbytes)  # kept, since new pages take longer
        self._filler[:nbytes].fill_(1)
        self._heap.own()


class Heap:
    """Maps all pages that the C library's heap grows by before they are used.

    It grows by many pages at once. A page is mapped when it is first written to; a huge page takes milliseconds, in
    whichever call that is. Pages of the zygote are left alone: of 100 MiB, a timed call writes to none that earlier
    calls have not copied.
    """

    def __init__(self) -> None:
        self._owned_until = INHERITED_UNTIL

    def own(self) -> None:
        """Map every page that was added since the last call.

        Does nothing where the kernel does not support it.
        """
        with contextlib.suppress(OSError, AttributeError):
            libc, start, end = ctypes.CDLL(None), self._owned_until, _heap_end()
            libc.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
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


def _huge_pages(nbytes: int) -> torch.Tensor:
    """Bytes on huge pages where the kernel has some, which are mapped in a third of the time."""
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)


def _heap_end() -> int:
    libc = ctypes.CDLL(None)
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_size_t, [ctypes.c_ssize_t]
    return int(libc.sbrk(0)) & -mmap.PAGESIZE


def _used_end() -> int:
    """The heap's end, once what it has grown by and not used yet is given back."""
    ctypes.CDLL(None).malloc_trim(0)
    return _heap_end()


INHERITED_UNTIL = _used_end()
"""Where the heap ended when this module was imported, in the zygote."""
