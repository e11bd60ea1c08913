"""What lies where the next tensors would, so that those come to lie elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from grader.worker.memory import give_back_memory


@dataclass
class Spacers:
    """Held until they are renewed or cleared."""

    _held: list[torch.Tensor] = field(default_factory=list)
    _calls_bytes: int = 0
    """On a GPU, of what calls allocated and freed before there were any spacers."""

    def renew(self, sizes: Sequence[int], device: torch.device) -> None:
        """Others, of so many bytes; a GPU, which has to be idle, gives tensors other pages."""
        if device.type == "cuda" and not self._held:
            self._calls_bytes = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        self.clear()
        give_back_memory(device, host=False)
        self._held += [_bytes(size, device) for size in sizes]
        for size in (self._calls_bytes, 1):  # a queued call should find its pages mapped, the small tensors' too
            _bytes(size, device)

    def clear(self) -> None:
        """Hold none."""
        self._held.clear()


def _bytes(count: int, device: torch.device) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device=device)
