"""Ends a grading between two jobs, because nobody wants its verdict any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.2
"""Between looks, in a wait, whether the grading is to end. A choice: it ends at most that late."""

_of_thread = threading.local()


class Interrupted(BaseException):
    """The grading of this thread is to end. No `Exception`: a stage must not take it for a failure."""


@contextmanager
def ended_when(is_unwanted: Callable[[], bool]) -> Iterator[None]:
    """Raise Interrupted in place of this thread's next job in the block once `is_unwanted` returns True."""
    _of_thread.is_unwanted = is_unwanted
    try:
        yield
    finally:
        del _of_thread.is_unwanted


def check() -> None:
    """Raise Interrupted if the grading of this thread is to end."""
    is_unwanted = getattr(_of_thread, "is_unwanted", None)
    if is_unwanted is not None and is_unwanted():
        raise Interrupted


def result(future: Future[T]) -> T:
    """The result that another thread reaches.

    Raises Interrupted if the grading of this thread is to end before.
    """
    while not future.done():
        check()
        wait([future], timeout=LOOK_SECONDS)
    return future.result()
