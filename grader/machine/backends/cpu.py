"""The host's CPU as a device."""

from __future__ import annotations

import platform
import re
import statistics
from pathlib import Path
from typing import Literal

from grader.errors import UserError
from grader.machine.backends import DeviceBackend, Resolution, TimingTraits
from grader.verdict.models import Device

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


class CpuBackend(DeviceBackend):
    """Memory, allocator and clock are the host's own, so that most of a device's questions are moot."""

    device = Device.CPU
    torch_device = "cpu"
    on_host = True
    timeline = False
    gpu = False
    streams = False
    tf32 = False
    timing = TimingTraits(
        resolution=Resolution(margin=0.05, half_width=0.02),
        sample_ms=1.0,
        sample_calls=4,
        middle=statistics.median,
        most_rounds=25,
        spacers=1,
        spacer_bytes=256 << 10,
        spacer_step=64,
        least_share=0.1,
        steady_ms=0.0,
    )
    """Choices: the place of a process's memory is worth some percent, by how its tensors share a cache (steps are cache
    lines), which the margin holds. Repeating a call evens out what disturbs it, and a median drops one that was held
    up. Longer samples leave time for fewer pairs: with 16 calls in 4 ms, intervals were a quarter wider (`--quick`, a
    call of 0.3 ms, two cores). `benchmarks/clock_agreement.py` measures what the least share costs."""
    region_kind: Literal["host", "cuda"] = "host"
    own_memory = False
    builds_apart = False
    """A build takes the cores that candidates are timed on."""
    warm_references = 6
    full_size_variant = "cpu"
    ends_in_background = False
    profiles_quickly = True
    pauses_spares = True

    def available(self) -> bool:
        return True

    def select(self, index: int) -> None:
        if index:
            raise UserError(f"--device-index {index}: the CPU is one device; leave it out")

    def device_name(self) -> str:
        try:
            lines = Path("/proc/cpuinfo").read_text().splitlines()
        except OSError:
            lines = []
        named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        return next(named, platform.machine())

    def cache_bytes(self) -> int | None:
        """The largest cache that the kernel lists for the first core."""
        sizes = []
        for path in _CACHES.glob("index*/size"):
            size = re.fullmatch(r"(\d+)([KM]?)", path.read_text().strip())
            if size:
                sizes.append(int(size[1]) * _UNITS[size[2]])
        return max(sizes, default=None)

    def flush_bytes(self) -> int:
        """More than the caches of common hosts. A choice."""
        return 64 << 20


BACKEND = CpuBackend()
