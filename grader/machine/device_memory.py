"""The peak of a device's memory during one grading, all processes together."""

from __future__ import annotations

import threading
from collections.abc import Callable

from grader.machine.backends import DeviceBackend

INTERVAL_SECONDS = 0.01
"""Seconds between samples; allocators keep memory for longer than this."""


class PeakMemory:
    """Samples the device's used memory in the background; a context manager.

    `baseline_bytes` were in use by others before; another program that grows meanwhile is counted in. Nothing is
    sampled while `shared()` is true: while a worker that was graded before has not given its memory back.
    """

    def __init__(self, backend: DeviceBackend, baseline_bytes: int | None, shared: Callable[[], bool]) -> None:
        self.peak_bytes = None if baseline_bytes is None else 0
        """None on a device whose memory is the host's."""
        self._backend, self._shared = backend, shared
        self._baseline_bytes = baseline_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        if self.peak_bytes is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.peak_bytes is not None:
            self._stop.set()
            self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(INTERVAL_SECONDS):
            if not self._shared():
                used = (self._backend.used_bytes() or 0) - (self._baseline_bytes or 0)
                self.peak_bytes = max(self.peak_bytes or 0, used)
