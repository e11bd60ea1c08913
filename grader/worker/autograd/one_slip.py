"""Lists what could go wrong in a forward or backward, or lets one thing go wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from grader import protocol as p
from grader.worker.autograd.spelled_out import STEPS

Slips = Iterator[tuple[str, Callable[[], Any]]]
"""What is done, in words that follow "the reference with", and the operator's result then."""
MOST = 1024
"""Different slips that are listed; a deep network has as many."""
LIBRARIES = ("torch", "grader")
"""Packages whose modules are no place in the reference's source."""


def with_gradient_of(other: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A value with the derivative of another tensor, also where that is infinite, as behind a mask."""
    rest = other - other.detach()
    return value.detach() + (rest.nan_to_num(0.0) if rest.is_floating_point() else rest)


def with_operand(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], at: int, other: torch.Tensor) -> Any:
    """The operator's result with another operand."""
    return function(*args[:at], other, *args[at + 1 :], **kwargs)


def _calling_place() -> tuple[int, int, int]:
    """The place in the reference's source from which a function is called: its code, its instruction and its line."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES and frame.f_back is not None:
        frame = frame.f_back
    return id(frame.f_code), frame.f_lasti, frame.f_lineno


class SlipChoice:
    """Counts what could go wrong, and chooses the slip that was asked for."""

    def __init__(self, slip: p.Slip) -> None:
        self._slip = slip
        self._times: dict[str, int] = {}
        self._places: dict[str, list[tuple[int, int, int]]] = {}
        """The places from which the functions are called in which a slip can be made, by slip."""
        self.name = ""
        """What went wrong; empty if nothing did."""
        self.beside = ""
        """The parameters that the present call takes, in words that follow the name."""
        self.within = ""
        """The function whose steps are counted, in words that follow those."""
        self.place = (0, 0, 0)
        """The place from which the present function is called."""

    def chosen(self, what: str) -> bool:
        """Whether this goes wrong now."""
        what += self.beside + self.within
        turn, places = self._times.get(what, 0), self._places.setdefault(what, [])
        if turn or len(self._times) < MOST:
            self._times[what] = turn + 1
        if self.place not in places:
            places.append(self.place)
        if what != self._slip.what or self._slip.turn not in (None, turn):
            return False
        if self._slip.place not in (None, places.index(self.place)):
            return False
        self.name = what
        return True

    @property
    def possible(self) -> tuple[p.PossibleSlip, ...]:
        """The slips that there could be, in the order of the calls; none where one was asked for."""
        if self._slip.what:
            return ()
        return tuple(
            p.PossibleSlip(what=what, times=times, lines=tuple(line for *_, line in self._places[what]))
            for what, times in self._times.items()
        )


class OneSlip(TorchFunctionMode):
    """Does one thing wrong in the functions that a forward calls, or lists what could go wrong."""

    def __init__(self, slip: p.Slip, parameters: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self._choice = SlipChoice(slip)
        self._parameters = {value.data_ptr(): name for name, value in parameters.items() if value.numel()}

    def _note(self, args: Iterable[object]) -> None:
        """Note a call's place and the parameters among its operands, by which layers of one shape differ."""
        self._choice.place = _calling_place()
        pointers = [operand.data_ptr() for operand in args if isinstance(operand, torch.Tensor)]
        taken = dict.fromkeys(self._parameters[pointer] for pointer in pointers if pointer in self._parameters)
        self._choice.beside = f" (with {' and '.join(f'`{name}`' for name in taken)})" if taken else ""

    def _by_steps(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function of several steps by these, each of which may go wrong."""
        outer, self._choice.within = self._choice.within, f" in `{function.__name__}`"
        with self:
            result = STEPS[function](*args, **kwargs)
        self._choice.within = outer
        return result

    @property
    def name(self) -> str:
        """The slip, if there was one."""
        return self._choice.name

    @property
    def slips(self) -> tuple[p.PossibleSlip, ...]:
        """The slips that there could be."""
        return self._choice.possible
