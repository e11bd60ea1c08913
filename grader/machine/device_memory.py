"""How much of the device's memory a grading takes, all processes together, as the driver counts it, and how much is
left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import pynvml
import torch

INTERVAL_SECONDS = 0.01
"""Allocators keep what they took for longer than this."""
AMPLE_SHARE = 0.75
"""Of the device's memory: while so much is free, what we keep there is in nobody's way."""


def used_bytes() -> int:
    """In use on torch's first device, by whomever."""
    return int(pynvml.nvmlDeviceGetMemoryInfo(_device()).used)


def ample() -> bool:
    """Most of the memory of torch's first device is free; never where it is not in use."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    free, total = torch.cuda.mem_get_info()
    return free >= AMPLE_SHARE * total


@cache
def _device() -> Any:
    """NVML's handle; what says which one takes longer than what is asked."""
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")


class PeakMemory:
    """Samples the device's used memory in the background; a context manager.

    What was in use at `baseline_bytes` is somebody else's; another program that grows meanwhile is counted in. Nothing
    is while `shared` says so: while a worker that was graded before has not given its memory back.
    """

    def __init__(self, baseline_bytes: int, shared: Callable[[], bool]) -> None:
        self.peak_bytes = 0
        self._shared = shared
        self._baseline_bytes = baseline_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(INTERVAL_SECONDS):
            if not self._shared():
                self.peak_bytes = max(self.peak_bytes, used_bytes() - self._baseline_bytes)
