"""Mistakes in a forward, made in the reference: another option, dimension, function or order.

What follows from them in the backward is autograd's; a run with gradients keeps the right outputs where it can, unless
the slip is made where a backward computes the forward again. Each run makes one slip.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from grader import protocol as p
from grader.worker.autograd.borders import OF_WINDOWS, at_borders
from grader.worker.autograd.epsilons import epsilons
from grader.worker.autograd.ignored_labels import counted
from grader.worker.autograd.one_slip import OneSlip, Slips, with_gradient_of
from grader.worker.autograd.other_functions import (
    Order,
    Scales,
    at_edges,
    left_out,
    like,
    name_of,
    of_fewer,
    opposite,
    other_counts,
    without_moving,
)
from grader.worker.autograd.other_options import other_options
from grader.worker.autograd.shares import Shares
from grader.worker.autograd.spelled_out import STEPS, affine, normed
from grader.worker.autograd.tails import tails

_SECOND = ("softmax", "log_softmax", "softmin", "logsumexp", "mean", "sum", "var", "std", "amax", "amin")
_SCANS = ("cumsum", "cumprod", "logcumsumexp")
_THIRD = ("normalize", "norm", "linalg_norm", "linalg_vector_norm")
DIMS: dict[str, int] = {**dict.fromkeys(_SECOND + _SCANS, 1), **dict.fromkeys(_THIRD, 2)}
"""The position of `dim` among the arguments, by the name of the function."""

COMPARISONS = {"lt": ("<", "le", "<="), "le": ("<=", "lt", "<"), "gt": (">", "ge", ">="), "ge": (">=", "gt", ">")}
"""A comparison's sign, and the function and the sign of the one that differs from it where both sides are equal."""


class ForwardSlips(OneSlip):
    """Does one thing wrong in the functions that a forward calls."""

    def __init__(self, slip: p.Slip, parameters: Mapping[str, torch.Tensor]) -> None:
        super().__init__(slip, parameters)
        self._keeps_values = slip.within == "forward"
        """Whether what follows in a run with gradients has the right values."""
        self._seen: set[tuple[int, int, int]] = set()
        self._everywhere: tuple[int, int, int] | None = None
        """The number of dimensions, the right one, and the one that is taken for it in every reduction."""
        self._shares = Shares()
        self._order, self._scales = Order(), Scales()

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        in_steps = function in STEPS and not torch.is_grad_enabled()  # else `SpelledOut` calls them
        result = self._by_steps(function, args, kwargs) if in_steps else function(*args, **kwargs)
        self._note((*args, *kwargs.values()))
        for what, compute in (
            *self._shares.slips(function, args, kwargs, result),
            *opposite(function, args, kwargs, result),
            *(() if isinstance(result, torch.Tensor) else tails(name_of(function), function, args, kwargs)),
        ):
            if self._choice.chosen(what):
                return compute()
        if not isinstance(result, torch.Tensor):
            return result
        for what, compute in (
            *other_options(function, args, kwargs),
            *_normed_over(function, args, kwargs),
            *_unbiased(function, args, kwargs),
            *_at_bounds(function, args, kwargs),
            *counted(function, args, kwargs),
            *at_borders(function, args, kwargs),
            *at_edges(function, args, kwargs, result),
            *without_moving(function, args, kwargs, result),
            *self._scales.slips(function, args),
            *of_fewer(function, args, kwargs, result),
            *other_counts(function, args, kwargs, result),
            *(() if self._keeps_values and torch.is_grad_enabled() else left_out(function, args, result)),
            *like(function, args, kwargs),
            *self._order.slips(function, args, kwargs, result),
            *epsilons(name_of(function), function, args, kwargs),
            *tails(name_of(function), function, args, kwargs),
        ):
            if self._choice.chosen(what):
                return self._or(result, compute, windows=name_of(function)[:-2] in OF_WINDOWS)
        for taken, what, compute in _reduced_over(function, args, kwargs):
            if self._choice.chosen(f"`{function.__name__}` {what}"):
                return self._or(result, compute, kept_dim=True)
            if taken not in self._seen and self._choice.chosen(f"every reduction {what}"):
                self._everywhere = taken
            self._seen.add(taken)
            if taken == self._everywhere:
                return self._or(result, compute, kept_dim=True)
        return result

    def _or(
        self, right: torch.Tensor, compute: Callable[[], Any], *, kept_dim: bool = False, windows: bool = False
    ) -> torch.Tensor:
        """The wrong result if it can stand for the right one: by its shape, or broadcast if a dimension was kept.

        Without gradients, that of `windows` may have other extents, over which a later step may take a mean.
        Where gradients are asked and outputs were right, the values of the right one with the derivative of the wrong.
        """
        try:
            wrong = compute()
        except Exception:  # a function that does not take it
            return right
        if not isinstance(wrong, torch.Tensor):
            return right
        if self._keeps_values and right.requires_grad and wrong.shape == right.shape and wrong.requires_grad:
            return with_gradient_of(wrong, right)
        any_extents = (kept_dim and 1 in right.shape) or (windows and not torch.is_grad_enabled())
        fits = wrong.dim() == right.dim() if any_extents else wrong.shape == right.shape
        return wrong if fits else right


def _at_bounds(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """A comparison that differs where both sides are equal, and a bound left out."""
    sign, other, other_sign = COMPARISONS.get(getattr(function, "__name__", "").strip("_"), ("", "", ""))
    if sign and len(args) > 1:
        yield f"`{other_sign}` in place of `{sign}`", partial(getattr(torch, other), args[0], args[1])
    if function is functional.hardtanh:
        given = inspect.signature(STEPS.get(function, function)).bind(*args, **kwargs).arguments
        lower, upper = given.get("min_val", -1.0), given.get("max_val", 1.0)
        yield "`hardtanh` without its upper bound", partial(torch.clamp_min, args[0], lower)
        yield "`hardtanh` without its lower bound", partial(torch.clamp_max, args[0], upper)
    if (name := name_of(function)) in ("clamp", "clip"):
        both = ((1, "min"), (2, "max"))
        lower, upper = (kwargs.get(bound, args[at] if at < len(args) else None) for at, bound in both)
        if args and lower is not None and upper is not None:
            yield f"`{name}` without its upper bound", partial(torch.clamp, args[0], min=lower)
            yield f"`{name}` without its lower bound", partial(torch.clamp, args[0], max=upper)
        elif isinstance(lower, float | int):
            yield f"`add` of {lower} in place of `{name}`", partial(torch.add, args[0], lower)


def _reduced_over(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[tuple[int, int, int], str, Callable[[], Any]]]:
    """Another dimension for a reduction, a softmax or a scan: of how many, which one and for which, and in words."""
    name = getattr(function, "__name__", "")
    at = DIMS.get(name)
    if at is None or not args or not isinstance(args[0], torch.Tensor):
        return
    given = kwargs["dim"] if "dim" in kwargs else args[at] if at < len(args) else 1 if name == "normalize" else None
    alone = isinstance(given, Sequence) and len(given) == 1
    own, count = given[0] if alone else given, args[0].dim()  # type: ignore[index]
    if type(own) is not int:
        return
    own %= max(count, 1)
    for other in range(count):
        if other == own or args[0].shape[other] == 1:
            continue
        dim = (other,) if alone else other
        if at < len(args):
            call = partial(function, *args[:at], dim, *args[at + 1 :], **kwargs)
        else:
            call = partial(function, *args, **{**kwargs, "dim": dim})
        yield (count, own, other), f"over dimension {other} in place of {own}", call


def _normed_over(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """A norm over other elements."""
    if function is functional.layer_norm:
        given = inspect.signature(STEPS[function]).bind(*args, **kwargs).arguments
        value, last = given["input"], given["input"].dim() - 1
        alone = len(given["normalized_shape"]) == 1
        for dim in range(last) if alone else ():
            what = f"`layer_norm` over dimension {dim} in place of {last}"
            yield what, partial(_layer_norm_over, dim, value, given)
        if not alone:
            yield "`layer_norm` over the last dimension alone", partial(_layer_norm_over, last, value, given)
    if function is functional.group_norm:
        given = inspect.signature(STEPS[function]).bind(*args, **kwargs).arguments
        channels, own = given["input"].shape[1], given["num_groups"]
        for groups in dict.fromkeys((1, channels, own // 2, 2 * own, channels // own)):
            if groups == own or not groups or channels % groups:
                continue
            yield f"`num_groups` of `group_norm` set to {groups}", partial(function, **{**given, "num_groups": groups})


def _unbiased(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """A norm by the unbiased variance, which `torch.var` returns unless its `correction` is 0."""
    if function not in (functional.layer_norm, functional.group_norm, functional.batch_norm, functional.instance_norm):
        return
    given = dict(inspect.signature(STEPS.get(function, function)).bind(*args, **kwargs).arguments)
    value = given["input"]
    if function is functional.layer_norm:
        parts = value.numel() // max(math.prod(given["normalized_shape"]), 1)
    elif function is functional.group_norm:
        parts = value.shape[0] * given["num_groups"]
    else:
        parts = value.shape[1] * (value.shape[0] if function is functional.instance_norm else 1)
    count = value.numel() // max(parts, 1)
    if count > 1 and (function is not functional.batch_norm or given.get("training")):
        share, weight = (count - 1) / count, given.get("weight")
        given |= {"eps": given.get("eps", 1e-5) * share}
        if weight is not None:
            given |= {"weight": weight * math.sqrt(share)}
        factor = 1.0 if weight is not None else math.sqrt(share)
        yield f"the unbiased variance in `{function.__name__}`", lambda: function(**given) * factor


def _layer_norm_over(dim: int, value: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
    return affine(normed(value, (dim,), given.get("eps", 1e-5)), given.get("weight"), given.get("bias"))
