"""Ends a grading between two jobs, because nobody wants its verdict any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_of_thread = threading.local()


class Interrupted(BaseException):
    """The grading of this thread is to end. No `Exception`: a stage must not take it for a failure."""


@contextmanager
def ended_when(wanted: Callable[[], bool]) -> Iterator[None]:
    """End the grading of this thread at the next job in the block once `wanted` returns True.

    Interrupted is raised instead.
    """
    _of_thread.wanted = wanted
    try:
        yield
    finally:
        del _of_thread.wanted


def check() -> None:
    """Raise Interrupted if the grading of this thread is to end."""
    wanted = getattr(_of_thread, "wanted", None)
    if wanted is not None and wanted():
        raise Interrupted
