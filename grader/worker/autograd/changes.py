"""Changes how one forward or backward computes: with a mistake, in a narrower type, or with noise."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from grader import protocol as p
from grader.protocol.fewer_bits import of_bits
from grader.worker.autograd.backward_slips import FILLS, BackwardSlips
from grader.worker.autograd.detached import Detached
from grader.worker.autograd.engine import OperatorMode
from grader.worker.autograd.forward_slips import ForwardSlips
from grader.worker.autograd.jitter import Jittered
from grader.worker.autograd.saved_values import KeptValues
from grader.worker.autograd.sources import Recorded, Sources, is_float
from grader.worker.checks.flops import flop_formulas

FORWARDS = ("forward", "recomputed")
"""The slips that are made in a forward."""


def changed_forward(
    change: p.Change | None, leaves: Mapping[str, torch.Tensor]
) -> contextlib.AbstractContextManager[Any]:
    """The mode for a forward, which has the name of what it changes, or sources; None without a change.

    `leaves` are inputs and parameters by name.
    """
    if isinstance(change, p.Rounding):
        return RoundedResults(change)
    if isinstance(change, p.Jitter):
        return Jittered(change)
    if isinstance(change, p.SavedValues):
        return KeptValues()
    if change is None:
        return contextlib.nullcontext()
    parameters = {name: value for name, value in leaves.items() if not name.startswith("input[")}
    if change.within == "detached":
        return Detached(change, parameters)
    return ForwardSlips(change, parameters) if change.within in FORWARDS else Recorded(leaves)


def changed_backward(change: p.Change | None, sources: Sources) -> contextlib.AbstractContextManager[Any]:
    """The mode for a backward, which has the name of what it changes; None without a change.

    `sources` are those that the forward recorded.
    """
    if isinstance(change, p.Rounding):
        return RoundedResults(change)
    if not isinstance(change, p.Slip) or change.within in (*FORWARDS, "detached"):
        return contextlib.nullcontext()
    return BackwardSlips(change, sources)


SAMPLE = 4096
"""Elements of a rounded result among which different numbers are counted. A choice: many more than need to differ."""


def _distinct(value: torch.Tensor) -> int:
    """The number of different numbers in a sample of a tensor: that of label smoothing has two or three."""
    flat = value.detach().reshape(-1)
    return len(torch.unique(flat[:: max(1, flat.numel() // SAMPLE)])) if flat.numel() else 0


class RoundedResults(OperatorMode):
    """Rounds operands of products or results of one kind of operator, as a kernel in a narrower type."""

    def __init__(self, rounding: p.Rounding) -> None:
        super().__init__()
        self._rounding = rounding
        self._products = flop_formulas()
        self._kinds: list[str] = []
        self.name = ""
        """The operator that was rounded; empty if none was."""
        self.numbers = 0
        """Different numbers in its results, as far as a sample shows."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, turn = kwargs or {}, self._rounding.turn
        name = function.overloadpacket.__name__
        if turn is None:
            if function.overloadpacket in self._products:
                self.name = name
                args, kwargs = tree_map_only(torch.Tensor, self._shortened, (args, kwargs))
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        floats = [leaf for leaf in tree_leaves(result) if is_float(leaf)]
        if floats and not function.is_view and not name.startswith(FILLS):
            if name not in self._kinds:
                self._kinds.append(name)
            if self._kinds.index(name) == turn:
                self.name = name
                for value in floats:
                    self.numbers = max(self.numbers, _distinct(value))
                    value.copy_(self._shortened(value))
        return result

    def _shortened(self, value: torch.Tensor) -> torch.Tensor:
        """The nearest numbers with so many significant bits, or those nearest to zero."""
        if not is_float(value):
            return value
        return of_bits(value, self._rounding.bits, "cut" if self._rounding.cut else "to even")
