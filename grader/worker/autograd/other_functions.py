"""Mistakes in a forward: a step left out, another in its place, another edge, or another order."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from grader.worker.autograd.one_slip import Slips

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
    "sigmoid": (("`1 - sigmoid`", lambda x: torch.sigmoid(-x)), ("`hardsigmoid`", functional.hardsigmoid)),
    "hardsigmoid": (("`sigmoid`", torch.sigmoid),),
    "tanh": (("`hardtanh`", functional.hardtanh),),
    "softplus": (("`relu`", torch.relu),),
    "mish": (("`silu`", functional.silu),),
    "relu6": (("`relu`", torch.relu),),
    "elu": (("`relu`", torch.relu),),
    "leaky_relu": (("`relu`", torch.relu),),
}
"""Functions of one argument that are taken for others, by name: in words, and to compute."""
GREATEST: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "logaddexp": ("`maximum`", torch.maximum),
    "logsumexp": ("`amax`", torch.amax),
}
"""What is left of a sum of exponentials in its logarithm if only the greatest counts, by name."""
PARTING = ("chunk", "split", "tensor_split", "unbind")
"""Functions that take a tensor apart, by name."""

ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "truediv", "rtruediv", "pow", "maximum", "minimum")
"""Functions of two operands, by name."""
OF_MASKS = ("and", "or", "logical_and", "logical_or", "bitwise_and", "bitwise_or")
"""Functions of two masks, by name."""
LARGEST_EPSILON = 0.01
"""A number that is added is an epsilon up to this: where it shows little, none and another one look alike. A choice."""
OVERWRITES: dict[str, Callable[..., torch.Tensor]] = {"scatter_add": torch.scatter, "index_add": torch.index_copy}
"""What keeps one of the values for an index where a function adds them up, by name."""
SAME_VALUES = ("clone", "contiguous", "to", "detach", "float", "double", "type", "type_as", "expand", "expand_as")
"""Functions that leave values as they are."""

HALVES = {"rsqrt": (torch.sqrt, torch.reciprocal)}
"""Functions of which only the first half changes places with another step, as the root with an epsilon's sum."""


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
            first, rest = HALVES.get(name_of(function), (function, lambda swapped: swapped))
            what = f"`{name_of(first)}` before `{name_of(before)}`"
            yield what, lambda: rest(before(first(of_before[0], *args[1:], **kwargs), *of_before[1:], **options))


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, without the underscores of an operator's method."""
    return getattr(function, "__name__", "").strip("_")


def opposite(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Slips:
    """The other end of an order, of values and indices, a sum for a mean, or two parts exchanged.

    None of them is a mistake of a backward of right outputs.
    """
    name = getattr(function, "__name__", "")
    parts: Any = result if name in PARTING and not torch.is_grad_enabled() else ()
    if len(parts) == 2 and parts[0].shape == parts[1].shape:
        yield f"the two results of `{name}` exchanged", lambda: type(parts)(parts[::-1])
    if name in OPPOSITES and not torch.is_grad_enabled():
        yield f"`{OPPOSITES[name]}` in place of `{name}`", partial(getattr(torch, OPPOSITES[name]), *args, **kwargs)


def like(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """Another function of nearly the same values."""
    name = getattr(function, "__name__", "")
    for other, compute in LIKE.get(name, ()):
        yield f"{other} in place of `{name}`", partial(compute, args[0])
    if name in GREATEST and len(args) > 1:
        other, compute = GREATEST[name]
        yield f"{other} in place of `{name}`", partial(compute, *args, **kwargs)
    if name == "embedding_bag" and kwargs.get("mode") == "mean":
        yield "the sum of `embedding_bag` in place of its mean", partial(function, *args, **{**kwargs, "mode": "sum"})
    if "avg_pool" in name and not torch.is_grad_enabled():
        greatest = name.replace("avg", "max")
        yield f"`{greatest}` in place of `{name}`", partial(getattr(functional, greatest), *args[:4])


def left_out(function: Callable[..., Any], args: tuple[Any, ...], result: torch.Tensor) -> Slips:
    """A step left out, the other sign of a sum, and a difference the other way round.

    One of its operands takes the place of its result.
    """
    name = name_of(function)
    masks = name in OF_MASKS and result.dtype is torch.bool
    if name in SAME_VALUES or not (result.is_floating_point() or masks):
        return
    if name == "where" and len(args) == 3:
        for which, value in zip(("first", "second"), args[1:3], strict=True):
            kept = torch.as_tensor(value, dtype=result.dtype, device=result.device)
            yield f"the {which} value of `where` everywhere", partial(torch.broadcast_to, kept, result.shape)
        return
    arithmetic = name in ARITHMETIC + OF_MASKS and len(args) == 2
    for position, operand in enumerate(args[:2] if arithmetic else args[:1]):
        takes_its_place = isinstance(operand, torch.Tensor) and operand.shape == result.shape
        if takes_its_place and operand.data_ptr() != result.data_ptr():
            what = f"`{name}` left out"
            if arithmetic:
                other = args[1 - position]
                shown = f" of shape {list(other.shape)}" if isinstance(other, torch.Tensor) else f", {other}"
                what = f"`{name}` without its {'first' if position else 'second'} operand{shown}"
                if name == "add" and not isinstance(other, torch.Tensor) and 0 < other <= LARGEST_EPSILON:
                    what = f"another epsilon than {other}, or none"
            yield what, partial(operand.to, result.dtype)
    if name in ("add", "sub") and arithmetic:
        other_sign = {"add": "sub", "sub": "add"}[name]
        yield f"`{other_sign}` in place of `{name}`", partial(getattr(torch, other_sign), *args)
    if name in ("sub", "rsub"):
        yield f"the operands of `{name}` exchanged", result.neg


def at_edges(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> Slips:
    """A mask or scan one element off, a mask the other way round, values that overwrite each other."""
    name = name_of(function)
    if not args:  # all of them by name
        return
    if name in ("triu", "tril"):
        diagonal = kwargs.get("diagonal", args[1] if len(args) > 1 else 0)
        for other in (diagonal + 1, diagonal - 1):
            yield f"`{name}` at diagonal {other} in place of {diagonal}", partial(function, args[0], other)
    if name in ("mul", "div") and len(args) == 2 and isinstance(args[1], int) and args[1] > 1:
        for other in (args[1] - 1, args[1] + 1):
            yield f"`{name}` by {other} in place of {args[1]}", partial(function, args[0], other)
    if name == "cumsum":
        yield "`cumsum` without the element itself", partial(torch.sub, result, args[0])
    if name in OVERWRITES and len(args) >= 4 and not torch.is_grad_enabled():
        yield f"`{name}` that keeps one of the values for an index", partial(_overwritten, name, args, result)
    if name == "masked_fill" and len(args) == 3:
        yield "`masked_fill` where its mask is False", lambda: function(args[0], ~args[1], args[2])
        yield "`masked_fill` by 0", partial(function, args[0], args[1], 0)


def _overwritten(name: str, args: tuple[Any, ...], result: torch.Tensor) -> torch.Tensor:
    """The result where the last value for an index stays, and is not added to the others."""
    wrong = OVERWRITES[name](result, *args[1:4])
    return result.copy_(wrong) if result is args[0] else wrong


def of_fewer(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> Slips:
    """A variance by the other count: n, or n - 1."""
    name = name_of(function)
    count = args[0].numel() / max(result.numel(), 1) if args and isinstance(args[0], torch.Tensor) else 0
    if name not in ("var", "std") or count <= 1:
        return
    flags = [flag for flag in (*args[1:], kwargs.get("unbiased")) if isinstance(flag, bool)]
    biased = kwargs.get("correction", 1) == 0 or (bool(flags) and not flags[0])
    share = count / (count - 1) if biased else (count - 1) / count
    which = "n - 1 in place of n" if biased else "n in place of n - 1"
    yield f"`{name}` by {which}", partial(torch.mul, result, share if name == "var" else share**0.5)


def other_counts(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> Slips:
    """A mean that only adds along some of its dimensions, and a count in place of a sum."""
    name, value = name_of(function), args[0] if args else None
    if not isinstance(value, torch.Tensor) or not result.is_floating_point() or not result.numel():
        return
    count = value.numel() // result.numel()
    if name == "mean" and count > 1:
        for dim, extent in enumerate(value.shape):
            reduced = result.dim() == 0 or (result.dim() == value.dim() and result.shape[dim] == 1)
            if reduced and 1 < extent < count:
                yield f"`mean` without the division by {extent} (dimension {dim})", partial(torch.mul, result, extent)
    if name == "sum" and count > 1:
        what = f"the number of elements, {count}, in place of their `sum`"
        yield what, partial(torch.full_like, result, count)


def without_moving(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> Slips:
    """A view of another shape where the elements should have moved, as heads that are not transposed back."""
    name = name_of(function)
    if name in ("transpose", "permute", "swapaxes", "movedim") and args and result.shape != args[0].shape:
        yield f"a `reshape` in place of `{name}`", partial(torch.reshape, args[0], result.shape)


class Scales:
    """Constants made of an extent, as 1 over the root of the width of a head."""

    def __init__(self) -> None:
        self._extents: dict[int, None] = {}
        """Those of all operands so far."""

    def slips(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Slips:
        """The constant of another extent, or without its root; records the extents."""
        for operand in args:
            if isinstance(operand, torch.Tensor):
                self._extents |= dict.fromkeys(operand.shape)
        name = name_of(function)
        if name not in ("mul", "div") or len(args) != 2 or not isinstance(args[1], float) or not args[1]:
            return
        constant = abs(args[1] if name == "div" else 1 / args[1])
        size = round(constant * constant)
        is_root = size > 1 and abs(constant - math.sqrt(size)) <= 1e-6 * constant
        if not is_root or (math.isqrt(size) ** 2 == size and size not in self._extents):  # 8 is a number of its own
            return
        roots = {f"sqrt({extent})": math.sqrt(extent) for extent in self._extents if extent not in (0, 1, size)}
        for what, other in {f"{size}": float(size), **roots}.items():
            taken = math.copysign(other if name == "div" else 1 / other, args[1])
            yield f"{what} in place of sqrt({size}) in `{name}`", partial(function, args[0], taken)
