"""Mistakes at the borders of windows: other values there, or all of them on one side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from grader.worker.autograd.lost_terms import other_sides
from grader.worker.autograd.one_slip import Slips
from grader.worker.autograd.other_functions import name_of

OF_WINDOWS: dict[str, Sequence[str]] = {
    "conv": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    "avg_pool": ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "max_pool": ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
}
"""The arguments of functions of windows, by the beginning of the name."""


def at_borders(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """The function with another border of its input."""
    name = name_of(function)
    if function is functional.pad and len(args) > 1:
        for how, pad in other_sides(args[1]):
            yield f"the borders of `pad` {how}", partial(function, args[0], pad, *args[2:], **kwargs)
    kind, dims = name[:-2], name[-2:]
    if kind not in OF_WINDOWS or dims not in ("1d", "2d", "3d"):
        return
    given = dict(zip(OF_WINDOWS[kind], args, strict=False)) | kwargs
    yield from _of_pools(name, function, given)
    widths = _widths(given.get("padding", 0), int(dims[0]))
    if not any(widths) or "input" not in given:
        return
    value, rest = given.pop("input"), given | {"padding": 0}

    def bordered(sides: Sequence[int], mode: str = "constant") -> Any:
        return function(functional.pad(value, sides, mode=mode), **rest)

    both = [width for width in reversed(widths) for _ in range(2)]
    if kind == "max_pool":
        yield f"the borders of `{name}` filled with zeros", partial(bordered, both)
        return
    for mode in ("replicate", "reflect", "circular"):
        yield f"the borders of `{name}` in mode {mode}", partial(bordered, both, mode)
    for side, where in enumerate(("before", "behind")):
        alone = [2 * width * (at == side) for width in reversed(widths) for at in range(2)]
        yield f"the borders of `{name}` all {where} the input", partial(bordered, alone)


def _of_pools(name: str, function: Callable[..., Any], given: dict[str, Any]) -> Slips:
    """A pool with a last window that is not full, or without, and one without borders: of another extent, perhaps."""
    if "pool" in name and not torch.is_grad_enabled():
        ceils, has_options = given.get("ceil_mode", False), name.startswith("avg")  # `other_options` has the defaults
        if not (ceils and has_options):
            yield f"`ceil_mode` of `{name}` set to {not ceils}", partial(function, **given | {"ceil_mode": not ceils})
        if given.get("padding", 0) not in (0, (0,), [0]) and not has_options:
            yield f"`padding` of `{name}` set to 0", partial(function, **given | {"padding": 0})


def _widths(padding: object, count: int) -> list[int]:
    """The width of the border in each dimension; none if it is given in words."""
    if isinstance(padding, int):
        return [padding] * count
    given = list(padding) if isinstance(padding, tuple | list) else []
    return given * count if len(given) == 1 else given
