"""Terms that a backward loses where many have one place, and borders on another side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from grader.worker.autograd.one_slip import Slips
from grader.worker.autograd.other_functions import OVERWRITES

WHOLE = "the backward"
"""The place of an operator that is no step of a derivative."""


def of_many(name: str, place: str, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any) -> Slips:
    """Slips in which an operator keeps some of the terms, or adds along another dimension."""
    if name == "sum" and len(args) == 1 and right.dim() == 0:  # as for an operand of one number
        for dim in (dim for dim, extent in enumerate(args[0].shape) if extent > 1):
            what = f"a `sum` of {place} that takes only index 0 (the first) of dimension {dim}"
            yield what, partial(torch.sum, args[0].narrow(dim, 0, 1))
    if name == "sum" and len(args) > 1 and isinstance(args[1], Sequence):
        kept = any(args[2:]) or bool(kwargs.get("keepdim"))
        for dim in args[1] if len(args[1]) < args[0].dim() or len(args[1]) > 1 else ():
            first = args[0].narrow(dim, 0, 1)
            what = f"a `sum` over dimension {dim % args[0].dim()} of {place} that takes only index 0 (the first)"
            yield what, partial(torch.sum, first, list(args[1]), keepdim=kept)
        own = args[1][0] % args[0].dim() if len(args[1]) == 1 else None
        for dim, extent in enumerate(args[0].shape) if own is not None else ():
            alike = extent == args[0].shape[own]
            if dim != own and (alike or (place != WHOLE and kept)):  # if not alike, it is broadcast in a later step
                shape = right.shape if alike else [*args[0].shape[:dim], 1, *args[0].shape[dim + 1 :]]
                what = f"a `sum` over dimension {dim} for {own} of {place}"
                yield what, partial(_summed, args[0], dim, shape)
    if name in OVERWRITES:
        yield f"`{name}` of {place} that keeps one of the values for an index", partial(OVERWRITES[name], *args[:4])
    if name.startswith("max_pool") and name.endswith("_with_indices_backward"):
        grad_output, value, indices = args[0].flatten(2), args[1], args[-1].flatten(2)
        scattered = partial(torch.scatter, torch.zeros_like(value).flatten(2), 2, indices, grad_output)
        yield f"`{name}` of {place} that keeps one of the values for an index", lambda: scattered().view_as(value)
    if name == "constant_pad_nd":
        for how, pad in other_sides(args[1]):
            yield f"the borders of `{name}` in {place} {how}", partial(torch.constant_pad_nd, args[0], pad)


def _summed(value: torch.Tensor, dim: int, shape: Sequence[int]) -> torch.Tensor:
    return value.sum(dim).reshape(shape)


def other_sides(pad: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """Borders that are on the other side of one dimension, or half on either."""
    for at in range(0, len(pad), 2):
        one, two = pad[at : at + 2]
        if one != two:
            yield "on the other side", [*pad[:at], two, one, *pad[at + 2 :]]
            if (one + two) % 2 == 0:
                half = (one + two) // 2
                yield "half on either side", [*pad[:at], half, half, *pad[at + 2 :]]
