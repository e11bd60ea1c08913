"""Ends work that takes too long, in a process that is to live on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 1.0
"""Between attempts: Python drops an exception that is raised in a finalizer."""


class TookTooLong(BaseException):
    """The time is over. Not an Exception, which a search for kernels takes for the fault of one candidate."""


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raise TookTooLong after so many seconds, when the main thread runs Python next; None is no limit."""
    if seconds is None:
        yield
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"it took longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), AGAIN_SECONDS)  # zero would be no limit
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
