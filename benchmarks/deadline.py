"""Ends what takes too long, in the main thread."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class Late(BaseException):
    """The time is over. No error, which a grader would report as its own."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise Late in the block after so many seconds."""

    def late(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
