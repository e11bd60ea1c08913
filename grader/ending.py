"""Ends a process: on a signal by one exception, so that it cleans up, and at its end at once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

CLEANING_SECONDS = 5.0
"""After a signal, time in which others are ignored: a second one, or one that comes to a whole group and to each of its
processes, would end the cleaning up. A choice; later ones count, since an exception may get lost in a finalizer."""

IMPORTING_SECONDS = 0.05
"""Between looks whether C code has ended an import: it drops exceptions, as torch does one from the import of NumPy."""

UNFLUSHED = 120
"""The interpreter's exit status where the last output cannot be written, as into a pipe that nobody reads."""

_postponing = threading.Event()
"""Set while no signal may end the process."""


def end_on(numbers: Iterable[signal.Signals]) -> None:
    """Raise KeyboardInterrupt on SIGINT and SystemExit on other signals.

    Those that are ignored stay so, as nohup has SIGHUP.
    """
    ended: float | None = None

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        if _postponing.is_set() or _c_imports(frame):
            again = threading.Timer(IMPORTING_SECONDS, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        if ended is not None and time.monotonic() - ended < CLEANING_SECONDS:
            return
        ended = time.monotonic()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def leave(status: int) -> NoReturn:
    """End the process with this status, after its threads and exit handlers.

    The interpreter's own end takes apart what the imports made, half a second where torch is among them, and CUDA's
    exit handlers destroy contexts that end with the process.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does before exit handlers
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or UNFLUSHED
    os._exit(status)


@contextmanager
def postponed() -> Iterator[None]:
    """End on a signal after this block only, in which a library makes and removes a file.

    For blocks of milliseconds, not one inside of another.
    """
    _postponing.set()
    try:
        yield
    finally:
        _postponing.clear()


def _c_imports(frame: FrameType | None) -> bool:
    """Whether a module of C is being loaded, or NumPy, which torch imports from C."""
    if getattr(getattr(sys.modules.get("numpy"), "__spec__", None), "_initializing", False):
        return True
    while frame is not None:
        if frame.f_code.co_qualname.startswith("ExtensionFileLoader."):
            return True
        frame = frame.f_back
    return False
