"""Samples how much of the host's memory is in use."""

from __future__ import annotations

import threading
from pathlib import Path

INTERVAL_SECONDS = 0.1
"""Between two samples."""


class HostMemory:
    """A context manager that samples the host's memory in use, relative to its value at the start."""

    def __init__(self) -> None:
        self._idle, self._peak = used_bytes(), 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> HostMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def take(self) -> float:
        """Peak in GiB since the last call."""
        peak, self._peak = self._peak, 0
        return peak / 2**30

    def _sample(self) -> None:
        while not self._over.wait(INTERVAL_SECONDS):
            self._peak = max(self._peak, used_bytes() - self._idle)


def used_bytes() -> int:
    """Bytes of the host's memory in use, without what the kernel can reclaim."""
    fields = dict(text.split(":", 1) for text in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total - available
