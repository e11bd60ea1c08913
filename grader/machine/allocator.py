"""Host memory that was freed is used again, as device memory is by PyTorch's allocator.

glibc's own habit is to hand blocks back or to keep them by what a process has freed before: one of two workers would
then touch new pages in each call that the other does not, and take up to three times as long over the same work.
"""

from __future__ import annotations

import contextlib
import ctypes

MMAP_THRESHOLD_BYTES = 32 << 20
"""The highest that glibc would come to by itself: it finds places for aligned blocks so badly that keeping larger ones
would cost too much memory."""
KEPT_BYTES = 1 << 30
"""By the referee, at most: what is free beyond goes back. Workers are told when to give back."""

TUNABLES = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {
        "mmap_threshold": MMAP_THRESHOLD_BYTES,
        "trim_threshold": 1 << 40,
        "top_pad": 64 << 20,
        "hugetlb": 1,
    }.items()
)
"""For a worker's GLIBC_TUNABLES. Huge pages, where the kernel has them for those who ask, make what is touched for the
first time cheap."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """In this process, which should do nothing but grade."""
    with contextlib.suppress(OSError, AttributeError):  # glibc's own
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
