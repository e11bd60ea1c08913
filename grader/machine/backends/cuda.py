"""An NVIDIA GPU as a device. Methods import torch themselves, because some callers run before it."""

from __future__ import annotations

import ctypes
import os
import statistics
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from threading import Thread
from typing import Any, Literal

from grader.errors import UserError
from grader.machine.backends import DeviceBackend, Resolution, TimingTraits
from grader.verdict.models import NO_DEVICE, Device

AMPLE_SHARE = 0.75
"""Share of the device's memory that must be free for the grader to keep its own tensors there. A choice."""
LIMIT_BYTES = 76 << 30
"""Bytes that a grading uses where it can choose, so that a larger device grades by the same plan as one of 80 GB."""
COMPUTE_CAPABILITY = (75, 76)
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR, in cuda.h."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ALLOCATOR, _WHOLE_BLOCKS = "PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:256"
"""Splits no block of 256 MiB or more: PyTorch's allocator keeps a cached block as long as one small tensor lies in it.
On an H200, this was up to 8 GiB, of KernelBench's problems with large tensors."""


class CudaBackend(DeviceBackend):
    """torch's first CUDA device, which is the one that `select` leaves visible."""

    device = Device.CUDA
    torch_device = "cuda"
    on_host = False
    timeline = True
    gpu = True
    streams = True
    tf32 = True
    timing = TimingTraits(
        resolution=Resolution(
            margin=0.01,
            half_width=0.005,
            least_ms=0.0008,
            most=0.025,
            process_spread=0.028,
            launch_spread=0.8,
            placement_spread=0.12,
        ),
        sample_ms=1.0,
        sample_calls=4,
        middle=statistics.fmean,
        most_rounds=60,
        spacers=2,
        spacer_bytes=200 << 20,
        spacer_step=1 << 20,
        least_share=0.01,
        steady_ms=0.002,
    )
    """Resolution: on an H200, processes of like pace (`Resources.align`) differ by up to 0.1 us in a call of 16 us in
    two kernels, others by 0.4 us and more, steadily, and mostly by 0.2% from 0.3 ms on; 0.2 us of noise come on top.
    The farthest that two identical processes were apart in long calls was 1.4%: the spread is twice that, 1.4% for each
    of them. `benchmarks/timing_rule.py` simulates what this costs. With launches timed, the intervals of 48 figures of
    equal sides were up to 15% off, and the spread is twice that. The backward of a 3D convolution of KernelBench's
    differed by up to 12% between samples on other pages, and by 0.1% between those on the same.

    Samples: little disturbs a call, and another one costs several milliseconds, most of them not the call's. Calls are
    of two kinds (see TRIMMED in `grading/timing/statistics.py`), and one that is held up is trimmed with its pair. The
    shortest calls need many rounds, which are short as well.

    Spacers: the place of a call's tensors costs half a percent of a short call (steps are pages). Long calls depend on
    their pages: on an H200, a transposed 3D convolution took 3.24 or 3.45 ms in one process, for as long as it kept its
    memory.

    Clocks: in intervals of 0.4 ms on an H200, the farthest of twenty honest candidates was 1.7 us from the reference,
    and most were within 0.9 us. `benchmarks/clock_agreement.py` measures what the least share costs."""
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
        """Hides the other devices from this process and, by `worker_environment`, from workers.

        Also has this process' allocator keep large blocks whole. A worker's is as users have it.
        """
        os.environ.setdefault(_ALLOCATOR, _WHOLE_BLOCKS)
        if self._selected == (index, os.environ.get(_VISIBLE)) or (index == 0 and self._selected is None):
            return
        if self._selected is not None:
            raise UserError(f"this process grades on device {self._selected[0]}; start another for device {index}")
        shown = self.names()
        if index >= len(shown):
            raise UserError(f"--device-index {index}: {len(shown)} CUDA devices are here; count from 0")
        os.environ[_VISIBLE] = shown[index]
        self._selected = index, shown[index]

    def names(self) -> tuple[str, ...]:
        """Indices or UUIDs, as in CUDA_VISIBLE_DEVICES, where an invalid one hides itself and all after it."""
        named = os.environ.get(_VISIBLE)
        if named is None:
            return tuple(str(number) for number in range(_device_count()))
        names = (name.strip() for name in named.split(","))
        return tuple(takewhile(lambda name: name.isdigit() or name.startswith(("GPU-", "MIG-")), names))

    def visibility(self, name: str | None) -> Mapping[str, str]:
        return {_VISIBLE: "" if name is None else name}

    def worker_environment(self) -> Mapping[str, str]:
        visible = os.environ.get(_VISIBLE)
        return {} if visible is None else {_VISIBLE: visible}

    def device_name(self) -> str:
        import torch

        return torch.cuda.get_device_name() if self.available() else NO_DEVICE

    def device_id(self) -> str | None:
        import torch

        return f"GPU-{torch.cuda.get_device_properties(0).uuid}" if self.available() else None

    def driver_version(self) -> str | None:
        import pynvml

        try:
            pynvml.nvmlInit()
            return str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            return None

    def architecture(self) -> str | None:
        driver, device, number = _started_driver(), ctypes.c_int(), ctypes.c_int()
        if driver is None or driver.cuDeviceGet(ctypes.byref(device), 0):
            return None
        numbers = []
        for attribute in COMPUTE_CAPABILITY:
            driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            numbers.append(str(number.value))
        return ".".join(numbers)

    def start_driver(self) -> None:
        """The driver starts once in a process; ctypes lets other threads run meanwhile."""
        Thread(target=_started_driver, daemon=True).start()

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
        """Bytes in use as the driver counts them."""
        import pynvml

        try:
            return int(pynvml.nvmlDeviceGetMemoryInfo(_nvml_device()).used)
        except pynvml.NVMLError:
            return None

    def unused_bytes(self) -> int:
        import torch

        return int(torch.cuda.mem_get_info()[0])

    def allocatable_bytes(self) -> int:
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

    def cache_bytes(self) -> int:
        import torch

        return int(torch.cuda.get_device_properties(0).L2_cache_size)

    def flush_bytes(self) -> int:
        """Twice the L2 cache's size."""
        return 2 * self.cache_bytes()

    def nvml_device(self) -> Any | None:
        import pynvml

        try:
            return _nvml_device()
        except pynvml.NVMLError:
            return None


def _started_driver() -> Any | None:
    """The driver's library, ready for calls; None if there is none, or no device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if driver.cuInit(0) else driver


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
