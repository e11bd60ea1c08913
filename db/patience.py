"""Waits while another process keeps the database locked, and says so once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from grader.errors import StoreBusy

T = TypeVar("T")


class Patience:
    """Tries again for as long as the database is locked."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        """`say` prints a line for the user."""
        self._path, self._say = path, say

    def wait(self, action: Callable[[], T]) -> T:
        """The action's result. Raises what it raises, but StoreBusy."""
        waiting = False
        while True:
            try:
                return action()
            except StoreBusy:
                if not waiting:
                    self._say(f"{self._path}: another process keeps the database locked; waiting until it is done")
                waiting = True
