"""A private copy of an outbox, taken as soon as a worker begins to answer."""

from __future__ import annotations

import random
import time

import torch

from grader.executor.shared_memory import Region, typed
from grader.protocol import Slot

SEAL_BLOCK_BYTES = 64 << 10
"""Smallest block of a seal; smaller ones cost more time than the copy."""
SEAL_BLOCKS = 32
"""Most blocks of a seal."""
_SHUFFLE = random.SystemRandom()


class Seal:
    """The copy.

    Host memory is copied block by block in a random order, so that a worker that continues to write after its answer
    cannot stay ahead of the copy.
    """

    def __init__(self, outbox: Region, nbytes: int) -> None:
        self._from = outbox.flat[:nbytes]
        self._bytes = torch.empty_like(self._from)
        if not self._from.is_cuda:
            self._bytes.zero_()  # maps its pages before the clock runs
        self.taken_at = 0.0
        """Time of the copy's end, by `time.perf_counter`; 0 before."""

    def take(self) -> None:
        """Copy now, and wait for the copy."""
        if self._from.is_cuda:
            self.queue()
            torch.cuda.synchronize()
        else:
            block = max(SEAL_BLOCK_BYTES, self._from.numel() // SEAL_BLOCKS)
            starts = list(range(0, self._from.numel(), block))
            _SHUFFLE.shuffle(starts)
            for start in starts:
                self._bytes[start : start + block].copy_(self._from[start : start + block])
        self.taken_at = time.perf_counter()

    def queue(self) -> None:
        """Copy in the order of the device's current stream."""
        self._bytes.copy_(self._from)

    def view(self, slot: Slot) -> torch.Tensor:
        """Return the slot's tensor in the copy."""
        return typed(self._bytes, slot)
