"""Spares Python's garbage collector the objects that stay as long as the process.

What torch and SQLAlchemy make when they are imported is half a million objects, which each full collection visits: a
fifth of a second, several times during the imports, and several times more when the interpreter ends.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def permanent() -> Iterator[None]:
    """Collect nothing in this block, and never visit again what exists at its end."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
