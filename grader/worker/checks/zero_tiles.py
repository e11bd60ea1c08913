"""The share of a product that is left without tiles of zeros, as in a triangular operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

TILE = 64
"""Rows and columns of a tile: about what a fast kernel multiplies at a time. Zeros strewn over an operand, as behind a
ReLU, fill none, and no dense kernel gains by them."""
MOST_ELEMENTS = 1 << 28
"""Elements of an operand up to which it is looked at, which takes a quarter of its memory."""

Operands = tuple[torch.Tensor, torch.Tensor]
_OPERANDS: Mapping[str, Callable[..., Operands]] = {
    "mm": lambda a, b, *_: (a, b),
    "bmm": lambda a, b, *_: (a, b),
    "addmm": lambda _, a, b, *__: (a, b),
    "baddbmm": lambda _, a, b, *__: (a, b),
}


def share_left(func: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> float:
    """Share of an operator's products of two tiles in which neither is all 0; 1 for what is no product.

    `func` is an overload of an operator, with its arguments in order and by name.
    """
    name = func.overloadpacket.__name__
    if name.startswith("_scaled_dot_product"):
        names = (argument.name for argument in func._schema.arguments)
        return _attended(**{**dict(zip(names, arguments, strict=False)), **named})
    find = _OPERANDS.get(name)
    if find is None:
        return 1.0
    a, b = find(*arguments)
    small, large = min(*a.shape[-2:], *b.shape[-2:]) < 2 * TILE, max(a.numel(), b.numel()) > MOST_ELEMENTS
    if small or large or a.is_sparse or b.is_sparse:
        return 1.0
    left, right = (_filled(operand).double() for operand in (a, b))
    made = float((left.sum(-2) * right.sum(-1)).sum())
    return made / (left.numel() * right.shape[-1]) if made else 1.0  # weights that begin at zero do not stay there


def _attended(*, query: torch.Tensor, key: torch.Tensor, is_causal: bool = False, **_: Any) -> float:
    """Share of the pairs of a query (..., rows, features) and a key in which the query attends to the key."""
    queries, keys = query.shape[-2], key.shape[-2]
    if not is_causal or not queries * keys:
        return 1.0
    until = min(queries, keys)  # from there on, queries attend to all keys
    return (until * (until + 1) / 2 + (queries - until) * keys) / (queries * keys)


def _filled(operand: torch.Tensor) -> torch.Tensor:
    """Which tiles of the last two dimensions have an element that is not 0."""
    rows, columns = operand.shape[-2:]
    filled = torch.nn.functional.pad(operand != 0, (0, -columns % TILE, 0, -rows % TILE))
    batch = operand.shape[:-2]
    return filled.reshape(*batch, -(-rows // TILE), TILE, -(-columns // TILE), TILE).any(-1).any(-2)
