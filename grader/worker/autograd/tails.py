"""Sums over whole tiles without their tail, as a loop does, or over the last tile alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from grader.worker.autograd.one_slip import Slips

TILES = (4, 8, 16, 32, 64, 128)
"""Widths of a loop's steps: of vectors, of warps and of blocks."""
REDUCTIONS = ("sum", "mean", "prod", "logsumexp", "amax", "amin", "max", "min", "argmax", "argmin")
"""Functions of all elements along a dimension, or of all, by name."""
PRODUCTS = {"mm": -2, "bmm": -2, "matmul": -2, "linear": -1}
"""The dimension of the second factor that is summed over, by the name of the function; of the first it is the last."""


def tails(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """The function over as many elements as whole tiles have, and a product over the last tile alone.

    Nothing where that is all or none.
    """
    value = args[0] if args else None
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.dim():
        return
    if name in PRODUCTS and len(args) > 1 and args[1].dim() >= -PRODUCTS[name]:
        extent = value.shape[-1]
        for kept in whole_tiles(extent):
            factors = value.narrow(-1, 0, kept), args[1].narrow(PRODUCTS[name], 0, kept)
            yield f"`{name}` over the first {kept} of {extent} terms", partial(function, *factors, *args[2:], **kwargs)
        for kept in last_tiles(extent):
            first = extent - kept
            factors = value.narrow(-1, first, kept), args[1].narrow(PRODUCTS[name], first, kept)
            yield f"`{name}` over the last {kept} of {extent} terms", partial(function, *factors, *args[2:], **kwargs)
    elif name in REDUCTIONS and not (len(args) > 1 and isinstance(args[1], torch.Tensor)):
        for dim in _dimensions(value, args[1] if len(args) > 1 else kwargs.get("dim")):
            extent = value.shape[dim]
            for kept in whole_tiles(extent):
                what = f"`{name}` over the first {kept} of {extent} elements along dimension {dim}"
                shorter = partial(function, value.narrow(dim, 0, kept), *args[1:], **kwargs)
                yield what, partial(_weighted, shorter, kept / extent) if name == "mean" else shorter


def whole_tiles(extent: int) -> Iterator[int]:
    """The elements that loops over whole tiles reach, where they leave some out."""
    yield from sorted({extent - extent % tile for tile in TILES if extent % tile and extent > tile}, reverse=True)


def last_tiles(extent: int) -> Iterator[int]:
    """The elements of the last tile, which a loop leaves that writes what it should add."""
    yield from sorted({extent % tile or tile for tile in TILES if extent > tile})


def _weighted(compute: Callable[[], torch.Tensor], weight: float) -> torch.Tensor:
    """The result times a weight: a mean divides by all elements."""
    return compute() * weight


def _dimensions(value: torch.Tensor, given: object) -> Sequence[int]:
    """Those that are reduced."""
    if isinstance(given, int) and not isinstance(given, bool):
        return [given % value.dim()]
    if isinstance(given, Sequence) and given:
        return [dim % value.dim() for dim in given]
    return range(value.dim())
