"""Blocks of memory that occupy the addresses of freed tensors, so that the next ones get others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from grader.worker.memory import give_back_memory


@dataclass
class Spacers:
    """The blocks, kept until they are renewed or cleared."""

    _blocks: list[torch.Tensor] = field(default_factory=list)
    _calls_bytes: int = 0
    """On a GPU: bytes that calls allocated and freed before there were any blocks."""

    def renew(self, sizes: Sequence[int], device: torch.device) -> None:
        """Replace the blocks by new ones of these sizes in bytes; a GPU must be idle and maps new pages."""
        if device.type == "cuda" and not self._blocks:
            self._calls_bytes = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        self.clear()
        give_back_memory(device, 0, host=False)
        self._blocks += [_bytes(size, device) for size in sizes]
        for size in (self._calls_bytes, 1):  # so that a queued call finds its pages mapped, small tensors' included
            _bytes(size, device)

    def clear(self) -> None:
        """Free all blocks."""
        self._blocks.clear()


def _bytes(count: int, device: torch.device) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device=device)
