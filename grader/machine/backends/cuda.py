"""An NVIDIA GPU as a device. Methods import torch themselves, because some callers run before it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from grader.errors import UserError
from grader.verdict.models import Device

AMPLE_SHARE = 0.75
"""Share of the device's memory that must be free for the grader to keep its own tensors there. A choice."""
LIMIT_BYTES = 76 << 30
"""Bytes that a grading uses where it can choose, so that a larger device grades by the same plan as one of 80 GB."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class CudaBackend:
    """torch's first CUDA device, which is the one that `select` leaves visible."""

    device = Device.CUDA
    region_kind: Literal["host", "cuda"] = "cuda"
    own_memory = True
    builds_apart = True
    warm_references = 3
    full_size_variant = "full"
    ends_in_background = True
    pauses_spares = False
    profiles_quickly = False
    """CUPTI takes seconds to start, and slows the process that it was in."""

    def __init__(self) -> None:
        self._selected: tuple[int, str | None] | None = None

    def available(self) -> bool:
        import torch

        return torch.cuda.is_available()

    def select(self, index: int) -> None:
        """Hides the other devices from this process and, by `worker_environment`, from workers."""
        named = os.environ.get(_VISIBLE)
        if index == 0 or self._selected == (index, named):
            return
        shown = named.split(",") if named else [str(number) for number in range(_device_count())]
        if index >= len(shown):
            raise UserError(f"--device-index {index}: {len(shown)} CUDA devices are here; count from 0")
        os.environ[_VISIBLE] = shown[index]
        self._selected = index, shown[index]

    def worker_environment(self) -> Mapping[str, str]:
        visible = os.environ.get(_VISIBLE)
        return {
            # Freed memory fits any later tensor, so the process keeps no more than its peak.
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            **({} if visible is None else {_VISIBLE: visible}),
        }

    def device_name(self) -> str:
        import torch

        return torch.cuda.get_device_name() if self.available() else "none"

    def driver_version(self) -> str | None:
        import pynvml

        try:
            pynvml.nvmlInit()
            return str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            return None

    def architecture(self) -> str | None:
        import torch

        if not self.available():
            return None
        major, minor = torch.cuda.get_device_capability()
        return f"{major}.{minor}"

    def prepare(self) -> None:
        import torch

        torch.zeros(1, device="cuda")

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()

    def empty_cache(self) -> None:
        import torch

        torch.cuda.empty_cache()

    def random_devices(self) -> list[int]:
        import torch

        return [torch.cuda.current_device()]

    def used_bytes(self) -> int | None:
        """As the driver counts it."""
        import pynvml

        return int(pynvml.nvmlDeviceGetMemoryInfo(_nvml_device()).used)

    def free_bytes(self) -> int:
        import torch

        free, total = torch.cuda.mem_get_info()
        return min(free, LIMIT_BYTES - (total - free))

    def ample_memory(self) -> bool:
        """Never before this process uses the device."""
        import torch

        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return False
        free, total = torch.cuda.mem_get_info()
        return free >= AMPLE_SHARE * total

    def cache_bytes(self) -> int | None:
        import torch

        return int(torch.cuda.get_device_properties(0).L2_cache_size)


def _device_count() -> int:
    """Without torch, whose own count would fix CUDA_VISIBLE_DEVICES."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


@cache
def _nvml_device() -> Any:
    """NVML's handle. Cached: looking it up takes longer than a query."""
    import pynvml
    import torch

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")


BACKEND = CudaBackend()
