"""Waits until nothing else uses a GPU's memory bandwidth.

A driver overwrites freed memory in the background, also that of other processes: on an H200 for 2.1 ms per GiB, and a
kernel that streams memory takes 11% longer meanwhile. How long that lasts shows when a block is copied again and again,
until copies run at full speed.
"""

from __future__ import annotations

import contextlib
import time
from functools import cache
from itertools import pairwise
from statistics import median

import torch

COPIED_BYTES = 128 << 20
"""Bytes of a copy: more than an L2 cache, and copied in a sixteenth of a millisecond by an H200."""
COPIES = 5
"""Copies whose median counts: one may be held up."""
FULL_SPEED = 1.04
"""Factor over the fastest median up to which copies run at full speed. On an H200 they vary by 1% in quiet memory, and
take 11% longer while memory is being cleared."""
MOST_SECONDS = 0.3
"""Time limit: more than a driver takes to clear all of a GPU's memory. What lasts longer is its usual speed."""


class QuietMemory:
    """The speed of the device's memory, as far as it is known.

    The blocks are kept: a pair of others may be copied some percent faster or slower.
    """

    def __init__(self) -> None:
        self._blocks: list[torch.Tensor] = []
        self._fastest_ms = float("inf")

    def wait(self) -> None:
        """Return when memory runs at full speed, or when there is no memory to copy."""
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            while len(self._blocks) < 2:
                self._blocks.append(torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda"))
            end = time.monotonic() + MOST_SECONDS
            while (took_ms := self._copy_ms()) > FULL_SPEED * self._fastest_ms:
                if time.monotonic() > end:
                    self._fastest_ms = took_ms
            self._fastest_ms = min(self._fastest_ms, took_ms)

    def _copy_ms(self) -> float:
        """The median time of a copy, in milliseconds."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(COPIES + 1)]  # type: ignore[no-untyped-call]
        events[0].record()
        for event in events[1:]:
            self._blocks[0].copy_(self._blocks[1])
            event.record()
        events[-1].synchronize()
        return median(float(before.elapsed_time(after)) for before, after in pairwise(events))


@cache
def quiet_memory() -> QuietMemory:
    """The one of this process, which learns from all gradings."""
    return QuietMemory()
