"""Memory that the referee shares with one worker, and a private copy of what the worker wrote."""

from __future__ import annotations

import fcntl
import mmap
import os
import random
from collections.abc import Iterable
from typing import Literal

import torch

from grader.errors import DeviceError
from grader.protocol import ALIGNMENT_BYTES, ITEM_BYTES, Slot
from grader.protocol.regions import TypedBytes, device_bytes

F_SEAL_FUTURE_WRITE = 0x10
"""From fcntl.h: forbids new writable mappings, keeps existing ones. Not in Python's fcntl before 3.13."""

_NAMES = {getattr(torch, name): name for name in ITEM_BYTES}
"""Names of the dtypes that can be sent."""
RegionName = Literal["inbox", "outbox"]
RegionKind = Literal["host", "cuda"]
POISON_BYTE = 0xFF
"""Reads as NaN in every floating dtype, and as -1 in every signed integer."""
MOST_SPARE_BYTES = 1 << 28
"""Largest spare space of a region: a backward shares about twice as much as the forward before it. Where that is more,
another region costs little beside the values."""
LEAST_BYTES = 64 << 20
"""Smallest region. A larger one costs another job, and takes a busy driver 30 ms; a page of host memory that nobody
writes takes none."""


class Layout:
    """Allocates slots of one region in sequence."""

    def __init__(self) -> None:
        self.nbytes = 0

    def place(self, dtype: torch.dtype, shape: Iterable[int]) -> Slot:
        """Allocate a slot. Raises DeviceError for a dtype that cannot be sent."""
        name = _NAMES.get(dtype)
        if name is None:
            raise DeviceError(f"tensors of dtype {str(dtype).removeprefix('torch.')} cannot be sent to a worker")
        slot = Slot(self.nbytes, name, tuple(shape))
        self.nbytes += -(-slot.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return slot


class Region:
    """Bytes that both sides map; in host memory, the worker can write to an outbox only."""

    def __init__(self, name: RegionName, kind: RegionKind, nbytes: int) -> None:
        self.kind = kind
        maker = _HostMemory if kind == "host" else _DeviceMemory
        self._memory = maker(nbytes, worker_writes=name == "outbox")
        self.nbytes, self.flat = self._memory.nbytes, self._memory.bytes
        self._typed = TypedBytes(self.flat)
        self.descriptor = self._memory.descriptor
        """The descriptor to send with an `Attach`; the region closes it."""

    def view(self, slot: Slot) -> torch.Tensor:
        """Return the slot's tensor, a view of the shared memory."""
        return self._typed.view(slot)

    def address(self, slot: Slot) -> int:
        """Return the device address of the slot's first byte."""
        return int(self.flat.data_ptr()) + slot.offset

    def poison(self, nbytes: int) -> None:
        """Fill the first bytes, so that elements that are never written show."""
        self.flat[:nbytes].fill_(POISON_BYTE)

    def close(self) -> None:
        """Close the descriptor and unmap device memory."""
        self._memory.close()


class _HostMemory:
    def __init__(self, nbytes: int, *, worker_writes: bool) -> None:
        self.nbytes = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = os.memfd_create("grader", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.nbytes)
        mapping = mmap.mmap(self.descriptor, self.nbytes)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        if not worker_writes:
            seals |= F_SEAL_FUTURE_WRITE
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)
        self.bytes = torch.frombuffer(mapping, dtype=torch.uint8)

    def close(self) -> None:
        os.close(self.descriptor)  # the mapping ends with the last tensor that uses it


class _DeviceMemory:
    """Memory of `cuMemCreate`: unlike `cudaIpc` handles, its descriptor crosses namespaces on any driver."""

    def __init__(self, nbytes: int, *, worker_writes: bool) -> None:
        from cuda.bindings import driver

        self._driver = driver
        torch.zeros(1, device="cuda")  # makes the primary context current
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = torch.cuda.current_device()
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        properties.requestedHandleTypes = kind
        minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        granularity = self._call(driver.cuMemGetAllocationGranularity(properties, minimum))
        self.nbytes = -(-max(nbytes, 1) // granularity) * granularity
        handle = self._call(driver.cuMemCreate(self.nbytes, properties, 0))
        self._address = int(self._call(driver.cuMemAddressReserve(self.nbytes, 0, 0, 0)))
        self._call(driver.cuMemMap(self._address, self.nbytes, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location = properties.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._call(driver.cuMemSetAccess(self._address, self.nbytes, [access], 1))
        self.descriptor = int(self._call(driver.cuMemExportToShareableHandle(handle, kind, 0)))
        self._call(driver.cuMemRelease(handle))  # the mapping and the descriptor keep the memory
        self.bytes = device_bytes(self._address, self.nbytes)

    def _call(self, result: tuple[object, ...]) -> int:
        if result[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"sharing device memory with a worker: {result[0]!r}")
        return result[1] if len(result) > 1 else 0  # type: ignore[return-value]

    def close(self) -> None:
        os.close(self.descriptor)
        torch.cuda.synchronize()
        self._call(self._driver.cuMemUnmap(self._address, self.nbytes))
        self._call(self._driver.cuMemAddressFree(self._address, self.nbytes))


SEAL_BLOCK_BYTES = 64 << 10
"""Smallest block of a seal; smaller ones cost more time than the copy."""
SEAL_BLOCKS = 32
"""Most blocks of a seal."""
_SHUFFLE = random.SystemRandom()


def roomy(kind: RegionKind, nbytes: int, *, spare: bool) -> int:
    """Bytes of a region for so many bytes, so that it is seldom replaced by a larger one."""
    if spare and kind == "cuda":
        return nbytes + min(nbytes + LEAST_BYTES, MOST_SPARE_BYTES)
    return max(nbytes, LEAST_BYTES)


class Seal:
    """The copy.

    Host memory is copied block by block in a random order, so that a worker that continues to write after its answer
    cannot stay ahead of the copy.
    """

    def __init__(self, outbox: Region, nbytes: int, *, start: int = 0) -> None:
        """Seal the bytes from `start` up to `nbytes` of the outbox."""
        self._from = outbox.flat[start:nbytes]
        self._bytes = torch.empty_like(self._from)
        self._typed = TypedBytes(self._bytes, start)
        if not self._from.is_cuda:
            self._bytes.zero_()  # maps its pages before the clock runs
        self.taken = False

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
        self.taken = True

    def queue(self) -> None:
        """Copy in the order of the device's current stream."""
        self._bytes.copy_(self._from)

    def view(self, slot: Slot) -> torch.Tensor:
        """Return the slot's tensor in the copy."""
        return self._typed.view(slot)
