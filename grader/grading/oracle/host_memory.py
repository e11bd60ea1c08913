"""Where large tensors wait until they are needed: in the host's memory, since the device's is the candidate's."""

from __future__ import annotations

import weakref

import torch

LARGE_BYTES = 64 << 20
"""From this size on they wait there: at full size a case is several GB."""


def is_large(value: object) -> bool:
    """A tensor of LARGE_BYTES or more."""
    return isinstance(value, torch.Tensor) and value.numel() * value.element_size() >= LARGE_BYTES


def parked(value: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A large tensor of a device in pinned host memory, as `dtype` where that is given; others as they are."""
    if is_large(value) and value.is_cuda:
        value = value.to(dtype or value.dtype)  # here: on its way, the CPU would do it, in seconds
        return _pinned(value.shape, value.dtype).copy_(value)
    return value


def _pinned(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Memory that a GPU reads at its bus's speed.

    PyTorch has the driver allocate it, which takes half a second a gigabyte on an H200's host; touched by all cores and
    registered then, it is there in an eighth of a second.
    """
    host = torch.empty(shape, dtype=dtype).fill_(0)
    runtime, address = torch.cuda.cudart(), host.data_ptr()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(int(runtime.cudaHostRegister(address, host.numel() * host.element_size(), 0)))
    weakref.finalize(host, runtime.cudaHostUnregister, address).atexit = False
    return host
