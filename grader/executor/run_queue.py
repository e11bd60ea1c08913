"""How long a worker's threads have waited for a core, which is no work of the worker's."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def waited_ms(pids: Iterable[int]) -> float:
    """Return how many milliseconds all threads of these processes have waited for a core so far.

    From /proc/PID/task/TID/schedstat, whose second number is in nanoseconds; 0 where the kernel does not count them.
    """
    nanoseconds = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError, IndexError):  # it has ended
                nanoseconds += int(thread.read_text().split()[1])
    return nanoseconds / 1e6
