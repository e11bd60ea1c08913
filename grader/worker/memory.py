"""The worker's mapping of the two shared regions, and the return of cached memory."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import warnings
from typing import Any

import torch

from grader.protocol import Attach, Slot
from grader.protocol.regions import TypedBytes, device_bytes


class Region:
    """Shared bytes as a flat uint8 tensor, with typed views by slot."""

    def __init__(self, step: Attach, descriptor: int) -> None:
        self._address = 0
        self._nbytes = step.nbytes
        if step.kind == "host":
            self._bytes = _map_host(step, descriptor)
        else:
            self._address = _map_cuda(step, descriptor)
            self._bytes = device_bytes(self._address, step.nbytes)
        self._typed = TypedBytes(self._bytes)

    def slot(self, slot: Slot) -> torch.Tensor:
        """Return the slot's tensor, a view of the shared memory."""
        return self._typed.view(slot)

    def address(self, slot: Slot) -> int:
        """Return the device address of the slot's first byte."""
        return int(self._bytes.data_ptr()) + slot.offset

    def close(self) -> None:
        """Unmap device memory; it is freed when the referee unmaps it too."""
        if self._address:
            from cuda.bindings import driver

            torch.cuda.synchronize()
            _call(driver.cuMemUnmap(self._address, self._nbytes))
            _call(driver.cuMemAddressFree(self._address, self._nbytes))


def _map_host(step: Attach, descriptor: int) -> torch.Tensor:
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if step.region == "outbox" else 0)
    mapping = mmap.mmap(descriptor, step.nbytes, flags=mmap.MAP_SHARED, prot=protection)
    os.close(descriptor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the inbox is read-only
        return torch.frombuffer(mapping, dtype=torch.uint8)


def give_back_memory(device: torch.device, keep_bytes: int, *, host: bool) -> None:
    """Return cached memory: the GPU's, if it exceeds `keep_bytes`; with `host`, the CPU's."""
    if device.type == "cuda":
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > keep_bytes:
            torch.cuda.empty_cache()
    elif host:
        with contextlib.suppress(OSError, AttributeError):  # a C library without it caches little
            ctypes.CDLL(None).malloc_trim(0)


def driver_call(doing: str, result: tuple[Any, ...]) -> Any:
    """Return what a call of CUDA's driver returned beside its status. Raises RuntimeError if it failed."""
    if int(result[0]) != 0:
        raise RuntimeError(f"{doing}: {result[0]!r}")
    return result[1] if len(result) > 1 else None


def _call(result: tuple[Any, ...]) -> Any:
    return driver_call("sharing device memory", result)


def _map_cuda(step: Attach, descriptor: int) -> int:
    from cuda.bindings import driver

    torch.zeros(1, device="cuda")  # makes the primary context current, which the driver calls below need
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = _call(driver.cuMemImportFromShareableHandle(descriptor, kind))
    os.close(descriptor)
    address = _call(driver.cuMemAddressReserve(step.nbytes, 0, 0, 0))
    _call(driver.cuMemMap(address, step.nbytes, 0, handle, 0))
    _call(driver.cuMemRelease(handle))  # the mapping keeps the memory
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = torch.cuda.current_device()
    flags = driver.CUmemAccess_flags
    read_only = step.region == "inbox"
    access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READ if read_only else flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    _call(driver.cuMemSetAccess(address, step.nbytes, [access], 1))
    return int(address)
