"""The C library's heap, all of it there and this process's own.

It grows by many pages at once, and a worker that is a copy shares the old ones with the process it was copied from: a
page comes, or is copied, when it is first written to. A huge one takes milliseconds, in whichever call that happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from pathlib import Path

MADV_POPULATE_WRITE = 23
"""linux/mman.h, from Linux 5.14 on."""


class Heap:
    """Of this process."""

    def __init__(self) -> None:
        self._owned_until = 0

    def own(self) -> None:
        """Have each page that was added since the last time. Where the kernel cannot, some calls take longer."""
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_size_t, [ctypes.c_ssize_t]
            libc.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
            end = libc.sbrk(0) & -mmap.PAGESIZE
            start = self._owned_until or _start()
            if start < end and libc.madvise(start, end - start, MADV_POPULATE_WRITE) == 0:
                self._owned_until = end


def _start() -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[heap]"):
            return int(line.partition("-")[0], 16)
    raise OSError("no heap")
