"""Blocks of memory that occupy the addresses of freed tensors, so that the next ones get others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from grader.protocol import clearing_seconds
from grader.worker.memory import give_back_memory

ROUNDING_BYTES = 32 << 20
"""Bytes by which a caching allocator's segments may exceed what was requested."""
NOT_A_NUMBER = 0xFF
"""Byte that new pages are filled with: a value that a timed call reads and did not write is NaN."""


@dataclass
class Spacers:
    """The blocks, kept until they are renewed or cleared."""

    _blocks: list[torch.Tensor] = field(default_factory=list)
    _calls_bytes: int = 0
    """On a GPU: the most bytes that a sample's calls allocated and freed."""

    def renew(self, sizes: Sequence[int], device: torch.device) -> None:
        """Replace the blocks by new ones of these sizes in bytes; a GPU must be idle and maps new pages."""
        freed = self._note_freed() if device.type == "cuda" else 0
        self._blocks.clear()
        if device.type == "cuda":
            give_back_memory(device, 0, host=False)
            time.sleep(clearing_seconds(freed))
        self._blocks += [_bytes(size, device) for size in sizes]
        # So that a queued call finds its pages mapped and in the GPU's tables, small tensors' included.
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            for size in (self._calls_bytes, 1):
                _bytes(size, device).fill_(NOT_A_NUMBER)

    def clear(self) -> None:
        """Free all blocks, before the memory of a sample's calls is given back as well."""
        if self._blocks and self._blocks[0].is_cuda:
            self._note_freed()
        self._blocks.clear()

    def _note_freed(self) -> int:
        """Bytes that the allocator holds for nobody; the most of them are what a sample's calls take."""
        freed = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        if not self._calls_bytes or freed > self._calls_bytes + ROUNDING_BYTES:
            self._calls_bytes = freed
        return freed


def _bytes(count: int, device: torch.device) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device=device)
