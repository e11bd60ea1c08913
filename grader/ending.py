"""Ends a process on a signal: by one exception, so that what it has begun is cleaned up."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable
from types import FrameType

CLEANING_SECONDS = 5.0
"""After a signal, time in which others are ignored: a second one, or one that comes to a whole group and to each of its
processes, would end the cleaning up. A choice; later ones count, since an exception may get lost in a finalizer."""


def end_on(numbers: Iterable[signal.Signals]) -> None:
    """Raise KeyboardInterrupt on SIGINT and SystemExit on the others, unless they are ignored, as nohup has SIGHUP."""
    ended: float | None = None

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal ended
        if ended is not None and time.monotonic() - ended < CLEANING_SECONDS:
            return
        ended = time.monotonic()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
