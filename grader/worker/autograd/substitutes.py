"""Replaces torch functions by ones that kernels often implement by mistake."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from grader.protocol.fewer_bits import of_bits
from grader.worker.autograd.engine import OperatorMode
from grader.worker.autograd.one_slip import with_gradient_of
from grader.worker.autograd.spelled_out import SpelledOut


class _Gelu(TorchFunctionMode):
    def __init__(self, approximate: str) -> None:
        super().__init__()
        self._approximate = approximate

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is not torch.nn.functional.gelu:
            return function(*args, **(kwargs or {}))
        other = function(args[0], approximate=self._approximate)
        if not other.requires_grad:
            return other
        # In a right forward, what is behind it is differentiated at the right value.
        return with_gradient_of(other, function(*args, **(kwargs or {})))


class _NoDetach(TorchFunctionMode):
    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in (torch.Tensor.detach, torch.detach):
            return args[0].view_as(args[0])
        return function(*args, **(kwargs or {}))


class _NoNoGrad(TorchFunctionMode):
    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is torch._C._set_grad_enabled:  # by which no_grad() and set_grad_enabled() switch
            return None
        return function(*args, **(kwargs or {}))


class _TensorFloat(OperatorMode):
    """Convolutions on operands rounded to TensorFloat-32, in the backward too, on any device."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        convolutions = {torch.ops.aten.convolution.default: 2, torch.ops.aten.convolution_backward.default: 3}
        operands = convolutions.get(function, 0)
        return function(*map(_rounded, args[:operands]), *args[operands:], **(kwargs or {}))


def _rounded(value: torch.Tensor) -> torch.Tensor:
    """A float32 tensor with the 11 significant bits of TensorFloat-32; any other unchanged."""
    return of_bits(value.contiguous(), 11, "away") if value.dtype is torch.float32 else value


@contextlib.contextmanager
def substituted(name: str) -> Iterator[None]:
    """Replace torch functions while the block runs.

    `gelu_tanh`, `gelu_erf`: every GELU has that form, or under autograd its derivative. `no_detach`: detach() keeps the
    graph. `no_no_grad`: no_grad() does. `tf32`: convolutions round their operands. `spelled_out`: norms and attention
    are their steps. `none`: no replacement.
    """
    modes: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
        "gelu_tanh": lambda: _Gelu("tanh"),
        "gelu_erf": lambda: _Gelu("none"),
        "no_detach": _NoDetach,
        "no_no_grad": _NoNoGrad,
        "tf32": _TensorFloat,
        "spelled_out": SpelledOut,
    }
    with modes.get(name, contextlib.nullcontext)():
        yield
