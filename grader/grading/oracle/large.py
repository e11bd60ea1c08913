"""Which tensors are large: they are rounded to float32 where they wait, and each is compared on its own."""

from __future__ import annotations

import torch

LARGE_BYTES = 64 << 20
"""From this size on, a case at full size would be several gigabytes in float64."""


def is_large(value: object) -> bool:
    """A tensor of LARGE_BYTES or more."""
    return isinstance(value, torch.Tensor) and value.numel() * value.element_size() >= LARGE_BYTES
