"""Views of a shared region, and copies into and out of it, which referee and worker make alike."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

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
        dtype = value.dtype
        plain = value.nbytes < TOGETHER_BYTES and target.is_contiguous() and value.is_contiguous()
        if plain and not dtype.is_complex:
            groups[target.dtype, dtype, value.device].append((target, value))
        else:
            target.copy_(value, non_blocking=True)
    for pairs in groups.values():
        torch._foreach_copy_([target for target, _ in pairs], [value for _, value in pairs], non_blocking=True)


def memory_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions from the slowest to the fastest in memory; None if that is row-major or has gaps."""
    if value.is_contiguous():
        return None
    order = tuple(sorted(range(value.dim()), key=value.stride, reverse=True))
    return order if value.permute(order).is_contiguous() else None


def in_row_major_order(value: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """A copy of a tensor whose elements were written in another order of the dimensions."""
    as_written = value.view([value.shape[dim] for dim in order])
    return as_written.permute(sorted(range(len(order)), key=order.__getitem__)).contiguous()


class TypedBytes:
    """A region's bytes from `start` on, seen as tensors by slot.

    A job of a deep network views thousands of slots, so that each is one call of PyTorch's.
    """

    def __init__(self, flat: torch.Tensor, start: int = 0) -> None:
        """`flat`: uint8, a multiple of ALIGNMENT_BYTES long."""
        self._flat, self._start = flat, start
        self._wholes: dict[str, torch.Tensor] = {}
        """All bytes by the dtype that they are seen as."""

    def view(self, slot: Slot) -> torch.Tensor:
        """The slot's tensor, a view of the bytes."""
        if 0 in slot.shape:
            return torch.empty(slot.shape, dtype=getattr(torch, slot.dtype), device=self._flat.device)
        whole = self._wholes.get(slot.dtype)
        if whole is None:
            whole = self._wholes[slot.dtype] = self._flat.view(getattr(torch, slot.dtype))
        first = whole.storage_offset() + (slot.offset - self._start) // whole.itemsize
        return whole.as_strided(slot.shape, row_major(slot.shape), first)


@lru_cache(maxsize=1024)
def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of contiguous elements in row-major order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def device_bytes(address: int, nbytes: int) -> torch.Tensor:
    """Mapped device memory as a flat uint8 tensor."""
    return torch.as_tensor(_DeviceBytes(address, nbytes), device="cuda")


class _DeviceBytes:
    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
