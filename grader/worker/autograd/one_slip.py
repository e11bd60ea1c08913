"""Lists what could go wrong in a forward or backward, or lets one thing go wrong."""

from __future__ import annotations

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


def with_gradient_of(other: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A value with the derivative of another tensor, also where that is infinite, as behind a mask."""
    rest = other - other.detach()
    return value.detach() + (rest.nan_to_num(0.0) if rest.is_floating_point() else rest)


def with_operand(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], at: int, other: torch.Tensor) -> Any:
    """The operator's result with another operand."""
    return function(*args[:at], other, *args[at + 1 :], **kwargs)


class SlipChoice:
    """Counts what could go wrong, and chooses the slip that was asked for."""

    def __init__(self, slip: p.Slip) -> None:
        self._slip = slip
        self._times: dict[str, int] = {}
        self.name = ""
        """What went wrong; empty if nothing did."""
        self.beside = ""
        """The parameters that the present call takes, in words that follow the name."""
        self.within = ""
        """The function whose steps are counted, in words that follow those."""

    def chosen(self, what: str) -> bool:
        """Whether this goes wrong now."""
        what += self.beside + self.within
        turn = self._times.get(what, 0)
        if turn or len(self._times) < MOST:
            self._times[what] = turn + 1
        if what != self._slip.what or self._slip.turn not in (None, turn):
            return False
        self.name = what
        return True

    @property
    def possible(self) -> tuple[p.PossibleSlip, ...]:
        """The slips that there could be, in the order of the calls; none where one was asked for."""
        if self._slip.what:
            return ()
        return tuple(p.PossibleSlip(what=what, times=times) for what, times in self._times.items())


class OneSlip(TorchFunctionMode):
    """Does one thing wrong in the functions that a forward calls, or lists what could go wrong."""

    def __init__(self, slip: p.Slip, parameters: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self._choice = SlipChoice(slip)
        self._parameters = {value.data_ptr(): name for name, value in parameters.items() if value.numel()}

    def _note(self, args: Iterable[object]) -> None:
        """Note the parameters among the operands of a call, by which layers of one shape differ in a message."""
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
