"""Waits until nothing else uses a GPU's memory bandwidth.

A driver overwrites freed memory in the background, also that of other processes: on an H200 for 2.1 ms per GiB, and a kernel that
streams memory takes 11% longer meanwhile. How long that lasts shows when a block is copied again and again, until a
copy runs at full speed.
"""

from __future__ import annotations

import contextlib
import time
from functools import cache
from itertools import pairwise

import torch

COPIED_BYTES = 256 << 20
"""Bytes of a copy: several times an L2 cache, and copied in an eighth of a millisecond by an H200."""
FULL_SPEED = 1.04
"""Factor over the fastest copy up to which one runs at full speed. On an H200 copies vary by 1% in quiet memory, and
take 11% longer while memory is being cleared."""
COPIES = 3
"""Copies at full speed, one after another, that make memory quiet."""
MOST_SECONDS = 0.3
"""Time limit, twice what a driver takes to clear 76 GiB. What lasts longer is the memory's usual speed."""


class QuietMemory:
    """The speed of the device's memory, as far as it is known."""

    def __init__(self) -> None:
        self._fastest_ms = float("inf")

    def wait(self) -> None:
        """Return when memory runs at full speed, or when there is no memory to copy."""
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            source, target = (torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
            events = [torch.cuda.Event(enable_timing=True) for _ in range(COPIES + 1)]  # type: ignore[no-untyped-call]
            end = time.monotonic() + MOST_SECONDS
            while (slowest_ms := self._slowest_of(events, source, target)) > FULL_SPEED * self._fastest_ms:
                if time.monotonic() > end:
                    self._fastest_ms = slowest_ms

    def _slowest_of(self, events: list[torch.cuda.Event], source: torch.Tensor, target: torch.Tensor) -> float:
        """Milliseconds of the slowest of COPIES copies."""
        events[0].record()
        for event in events[1:]:
            target.copy_(source)
            event.record()
        events[-1].synchronize()
        took = [float(before.elapsed_time(after)) for before, after in pairwise(events)]
        self._fastest_ms = min(self._fastest_ms, *took)
        return max(took)


@cache
def quiet_memory() -> QuietMemory:
    """The one of this process, which learns from all gradings."""
    return QuietMemory()
