"""The host's CPU as a device."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from grader.errors import UserError
from grader.verdict.models import Device

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


class CpuBackend:
    """Memory, allocator and clock are the host's own, so that most of a device's questions are moot."""

    device = Device.CPU
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

    def worker_environment(self) -> Mapping[str, str]:
        return {}

    def device_name(self) -> str:
        try:
            lines = Path("/proc/cpuinfo").read_text().splitlines()
        except OSError:
            lines = []
        named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        return next(named, platform.machine())

    def driver_version(self) -> str | None:
        return None

    def architecture(self) -> str | None:
        return None

    def prepare(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def random_devices(self) -> list[int]:
        return []

    def used_bytes(self) -> int | None:
        return None

    def free_bytes(self) -> int:
        return 0

    def ample_memory(self) -> bool:
        return False

    def cache_bytes(self) -> int | None:
        """The largest cache that the kernel lists for the first core."""
        sizes = []
        for path in _CACHES.glob("index*/size"):
            size = re.fullmatch(r"(\d+)([KM]?)", path.read_text().strip())
            if size:
                sizes.append(int(size[1]) * _UNITS[size[2]])
        return max(sizes, default=None)


BACKEND = CpuBackend()
