"""Makes glibc keep freed host memory for the next allocation, as PyTorch's allocator does on devices.

By default glibc returns or keeps blocks depending on what a process has freed before. Of two workers, one would then
touch new pages in each call and the other would not, and take up to three times as long over the same work.
"""

from __future__ import annotations

import contextlib
import ctypes

MMAP_THRESHOLD_BYTES = 32 << 20
"""Bytes from which freed blocks are returned to the system. It is the highest value that glibc chooses by itself. glibc
fragments aligned blocks, so keeping larger ones would cost too much memory."""
KEPT_BYTES = 1 << 30
"""Bytes of free memory that the referee keeps at most. Workers keep everything until the referee requests its
return."""

TUNABLES = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {
        "mmap_threshold": MMAP_THRESHOLD_BYTES,
        "trim_threshold": 1 << 40,
        "top_pad": 64 << 20,
        "hugetlb": 1,
    }.items()
)
"""A worker's GLIBC_TUNABLES. Huge pages, where the kernel gives them, make the first access to memory cheap."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Change this process's allocator; only for a process that does nothing but grade."""
    with contextlib.suppress(OSError, AttributeError):  # another C library has no mallopt
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
