"""Blocks of memory that occupy the addresses of freed tensors, so that the next ones get others."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from grader.worker.memory import give_back_memory

ROUNDING_BYTES = 32 << 20
"""Bytes by which later calls may exceed earlier ones without being learned from anew."""
SMALL_SEGMENT = 2 << 20
"""Bytes of the allocator's segments for small tensors."""
NOT_A_NUMBER = 0xFF
"""Byte that new pages are filled with: a value that a timed call reads and did not write is NaN."""


@dataclass
class Spacers:
    """The blocks, kept until they are renewed or cleared."""

    _blocks: list[torch.Tensor] = field(default_factory=list)
    _segments: list[int] = field(default_factory=list)
    """On a GPU: the sizes in bytes of the allocator's free blocks after a sample's calls, of the largest so far."""

    def renew(self, sizes: Sequence[int], device: torch.device) -> None:
        """Replace the blocks by new ones of these sizes in bytes; a GPU must be idle and maps new pages."""
        if device.type == "cuda":
            self._note_freed()
        self._blocks.clear()
        if device.type == "cuda":
            give_back_memory(device, 0, host=False)
        self._blocks += [_bytes(size, device) for size in sizes]
        # So that a queued call finds its pages mapped and in the GPU's tables, small tensors' included.
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            # All at once: each would else be cut from the one before.
            for segment in [_bytes(size, device) for size in (*self._segments, 1)]:
                segment.fill_(NOT_A_NUMBER)

    def clear(self) -> None:
        """Free all blocks, before the memory of a sample's calls is given back as well."""
        if self._blocks and self._blocks[0].is_cuda:
            self._note_freed()
        self._blocks.clear()

    def _note_freed(self) -> None:
        """Note what the allocator holds for nobody; the most of it is what a sample's calls take."""
        freed = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        if not self._segments or freed > sum(self._segments) + ROUNDING_BYTES:
            segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
            # Those in segments of a model's tensors too: a spacer may take their place.
            blocks = [
                int(block["size"])
                for segment in segments
                for block in segment["blocks"]
                if block["state"] == "inactive"
            ]
            sizes = sorted((size for size in blocks if 2 * size >= SMALL_SEGMENT), reverse=True)
            self._segments = [part for size in sizes for part in _requests(size)]


def _requests(segment: int) -> list[int]:
    """Sizes that PyTorch's allocator makes such a segment for; it serves up to 1 MiB from segments of 2 MiB."""
    return [segment // 2] * 2 if segment <= SMALL_SEGMENT else [segment]


def _bytes(count: int, device: torch.device) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device=device)
