"""Numbers what could go wrong in a forward or backward, and chooses one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.overrides import TorchFunctionMode

Slips = Iterator[tuple[str, Callable[[], Any]]]
"""What is done, in words that follow "the reference with", and the operator's result then."""


class Counted:
    """Numbers what could go wrong, and chooses one."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._next = 0
        self.name = ""
        """What went wrong; empty if there was nothing of that number."""
        self.within = ""
        """The function whose steps are counted, in words that follow the name."""

    def chosen(self, name: str) -> bool:
        """Whether this is it."""
        self._next += 1
        if self._next - 1 == self._number:
            self.name = name + self.within
        return self._next - 1 == self._number


class OneSlip(TorchFunctionMode):
    """Does one thing wrong in the functions that a forward calls, by its number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._counted = Counted(number)

    @property
    def name(self) -> str:
        """The slip, if there was one."""
        return self._counted.name
