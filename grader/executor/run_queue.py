"""How long threads have waited for a core, which is no work of theirs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def waited_ms(pids: Iterable[int], *, main_threads: bool = False) -> float:
    """Return how many milliseconds the threads of these processes have waited for a core so far.

    From /proc/PID/task/TID/schedstat, whose second number is in nanoseconds; 0 where the kernel does not count them.
    """
    nanoseconds = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob(f"{pid if main_threads else '*'}/schedstat"):
            with suppress(OSError, IndexError):  # it has ended
                nanoseconds += int(thread.read_text().split()[1])
    return nanoseconds / 1e6


def busy_seconds(pids: Iterable[int]) -> float:
    """Return the host's clock in seconds, less what this process and `pids` have waited for a core.

    They take turns, so that the waits of their main threads add up.
    """
    return time.monotonic() - waited_ms([os.getpid(), *pids], main_threads=True) / 1e3
