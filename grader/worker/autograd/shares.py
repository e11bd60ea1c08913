"""Shares by a softmax among other elements than those that topk chooses or a mask leaves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from grader.worker.autograd.one_slip import Slips


class Shares:
    """Shares of elements that topk chooses or a mask leaves: among all, or among these alone."""

    def __init__(self) -> None:
        self._shares: dict[int, torch.Tensor] = {}
        self._chosen: dict[int, tuple[Any, torch.Tensor, int]] = {}
        """What topk returned, the elements that it chose from, and the dimension, by the values' identity."""
        self._masked: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        """What masked_fill returned, what it took, and the mask, by the result's identity."""

    def slips(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Slips:
        """A softmax over other elements than those of topk or of a mask; records the call."""
        name, value = getattr(function, "__name__", ""), args[0] if args else None
        if name == "topk" and isinstance(value, torch.Tensor) and isinstance(result, tuple):
            values, indices = result
            dim = kwargs["dim"] if "dim" in kwargs else args[2] if len(args) > 2 else -1
            self._chosen[id(values)] = result, value, dim
            if id(value) in self._shares:
                scaled = values / values.sum(dim, keepdim=True)
                yield "the values of `topk` divided by their sum", lambda: type(result)((scaled, indices))
        elif name == "softmax" and isinstance(result, torch.Tensor):
            self._shares[id(result)] = result
            chosen = self._chosen.get(id(value))
            if chosen is not None:
                (_, indices), every, dim = chosen
                among_all = partial(torch.softmax, every, dim)
                yield "`softmax` over all elements that `topk` chooses from", lambda: among_all().gather(dim, indices)
            masked = self._masked.get(id(value))
            if masked is not None:
                _, every, mask = masked
                shares = partial(function, every, *args[1:], **kwargs)
                yield "`masked_fill` by 0 behind `softmax`", lambda: shares().masked_fill(mask, 0.0)
        elif name == "masked_fill" and len(args) == 3 and isinstance(result, torch.Tensor):
            self._masked[id(result)] = result, args[0], args[1]
