"""Views of a shared region, and copies into and out of it, which referee and worker make alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch

from grader.protocol.base import Slot

TOGETHER_BYTES = 4 << 20
"""Bytes of a tensor from which it is copied by itself, at the speed of the memory."""


def copy_each(targets: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """Copy each value into its target, without waiting for a device.

    The small ones take a few launches for each dtype, however many there are: a deep network has hundreds of
    parameters, and a GPU queues a thousand launches at most.
    """
    groups: defaultdict[object, list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)
    for target, value in zip(targets, values, strict=True):
        plain = target.is_contiguous() and value.is_contiguous() and not value.is_complex()
        if plain and value.nbytes < TOGETHER_BYTES:
            groups[target.dtype, value.dtype, value.device].append((target.view(-1), value.view(-1)))
        else:
            target.copy_(value, non_blocking=True)
    for pairs in groups.values():
        torch._foreach_copy_([target for target, _ in pairs], [value for _, value in pairs], non_blocking=True)


def typed(region: torch.Tensor, slot: Slot, start: int = 0) -> torch.Tensor:
    """The slot's tensor, a view of a region's bytes from `start` on."""
    dtype = getattr(torch, slot.dtype)
    if slot.nbytes == 0:
        return torch.empty(slot.shape, dtype=dtype, device=region.device)
    first = slot.offset - start
    return region[first : first + slot.nbytes].view(dtype).view(slot.shape)


def device_bytes(address: int, nbytes: int) -> torch.Tensor:
    """Mapped device memory as a flat uint8 tensor."""
    return torch.as_tensor(_DeviceBytes(address, nbytes), device="cuda")


class _DeviceBytes:
    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
