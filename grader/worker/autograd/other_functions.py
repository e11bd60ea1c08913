"""Mistakes in a forward: a step left out, another in its place, or two in the other order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from grader.worker.autograd.counted import Slips

OPPOSITES = dict(
    pair
    for one, other in (("min", "max"), ("amin", "amax"), ("minimum", "maximum"), ("argmin", "argmax"), ("sum", "mean"))
    for pair in ((one, other), (other, one))
)
"""Functions of which one is taken for the other, by name, with the same arguments."""
LIKE: dict[str, tuple[tuple[str, Callable[..., torch.Tensor]], ...]] = {
    "gelu": (
        ("`x sigmoid(1.702 x)`", lambda x: x * torch.sigmoid(1.702 * x)),
        ("`silu`", functional.silu),
    ),
    "silu": (("`hardswish`", functional.hardswish), ("`gelu`", functional.gelu)),
    "hardswish": (("`silu`", functional.silu),),
    "sigmoid": (("`hardsigmoid`", functional.hardsigmoid),),
    "hardsigmoid": (("`sigmoid`", torch.sigmoid),),
    "tanh": (("`hardtanh`", functional.hardtanh),),
    "softplus": (("`relu`", torch.relu),),
    "mish": (("`silu`", functional.silu),),
    "relu6": (("`relu`", torch.relu),),
    "elu": (("`relu`", torch.relu),),
    "leaky_relu": (("`relu`", torch.relu),),
}
"""Functions of one argument that are taken for others, by name: in words, and to compute."""


ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "truediv", "rtruediv", "pow", "maximum", "minimum")
"""Functions of two operands, by name."""
SAME_VALUES = ("clone", "contiguous", "to", "detach", "float", "double", "type", "type_as", "expand", "expand_as")
"""Functions that leave values as they are."""


class Order:
    """Two steps in a row that keep the shape of their first argument, such as a sum and a product."""

    def __init__(self) -> None:
        self._last: tuple[torch.Tensor, Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None = None
        """The result of the last such step, and its call."""

    def slips(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
    ) -> Slips:
        """This step before the one whose result it takes; records the call."""
        value, last = args[0] if args else None, self._last
        if not isinstance(value, torch.Tensor) or value.shape != result.shape or value.data_ptr() == result.data_ptr():
            return
        self._last = result, function, args, kwargs
        if last is not None and last[0] is value and function is not last[1]:
            _, before, of_before, options = last
            what = f"`{name_of(function)}` before `{name_of(before)}`"
            yield what, lambda: before(function(of_before[0], *args[1:], **kwargs), *of_before[1:], **options)


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, without the underscores of an operator's method."""
    return getattr(function, "__name__", "").strip("_")


def opposite(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """The other end of an order, of values and indices, or a sum for a mean.

    None of them is a mistake of a backward of right outputs.
    """
    name = getattr(function, "__name__", "")
    if name in OPPOSITES and not torch.is_grad_enabled():
        yield f"`{OPPOSITES[name]}` in place of `{name}`", partial(getattr(torch, OPPOSITES[name]), *args, **kwargs)


def like(function: Callable[..., Any], args: tuple[Any, ...]) -> Slips:
    """Another function of nearly the same values."""
    name = getattr(function, "__name__", "")
    for other, compute in LIKE.get(name, ()):
        yield f"{other} in place of `{name}`", partial(compute, args[0])
    if "avg_pool" in name and not torch.is_grad_enabled():
        greatest = name.replace("avg", "max")
        yield f"`{greatest}` in place of `{name}`", partial(getattr(functional, greatest), *args[:4])


def left_out(function: Callable[..., Any], args: tuple[Any, ...], result: torch.Tensor) -> Slips:
    """A step left out, the other sign of a sum, and a difference the other way round.

    One of its operands takes the place of its result. In a backward of right outputs, its own steps are left out.
    """
    name = name_of(function)
    if torch.is_grad_enabled() or name in SAME_VALUES or not result.is_floating_point():
        return
    arithmetic = name in ARITHMETIC and len(args) == 2
    for position, operand in enumerate(args[:2] if arithmetic else args[:1]):
        takes_its_place = isinstance(operand, torch.Tensor) and operand.shape == result.shape
        if takes_its_place and operand.data_ptr() != result.data_ptr():
            what = f"`{name}` left out"
            if arithmetic:
                other = args[1 - position]
                shown = f" of shape {list(other.shape)}" if isinstance(other, torch.Tensor) else f", {other}"
                what = f"`{name}` without its {'first' if position else 'second'} operand{shown}"
            yield what, partial(operand.to, result.dtype)
    if name in ("add", "sub") and arithmetic:
        other_sign = {"add": "sub", "sub": "add"}[name]
        yield f"`{other_sign}` in place of `{name}`", partial(getattr(torch, other_sign), *args)
    if name in ("sub", "rsub"):
        yield f"the operands of `{name}` exchanged", result.neg
