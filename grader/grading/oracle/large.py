"""Sizes from which tensors and cases are handled one at a time."""

from __future__ import annotations

import torch

LARGE_BYTES = 64 << 20
"""Bytes from which a tensor is large: it is compared on its own, one job holds few like it, and its float64 values are
kept in float32. A case at full size would otherwise take several gigabytes."""
HUGE_BYTES = 4 << 30
"""Bytes of a case from which one timed call fills a sample, since reading them takes a millisecond at an H200's
4.8 TB/s, and from which both sides take turns in the device's memory."""
CHECK_BYTES = 256 << 20
"""Bytes of inputs that a check of adjustable size may use, on a CPU or a GPU. A choice: small beside a GPU's memory."""


def is_large(value: object) -> bool:
    """Whether the value is a tensor of LARGE_BYTES or more."""
    return isinstance(value, torch.Tensor) and value.numel() * value.element_size() >= LARGE_BYTES
