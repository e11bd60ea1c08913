"""Replaces torch functions by ones that kernels often implement by mistake."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _Gelu(TorchFunctionMode):
    def __init__(self, approximate: str) -> None:
        super().__init__()
        self._approximate = approximate

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.nn.functional.gelu:
            return function(args[0], approximate=self._approximate)
        return function(*args, **(kwargs or {}))


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


@contextlib.contextmanager
def substituted(name: str) -> Iterator[None]:
    """Replace torch functions while the block runs.

    `gelu_tanh`, `gelu_erf`: every GELU has that form. `no_detach`: detach() keeps the graph. `no_no_grad`:
    no_grad() does. `none`: no replacement.
    """
    modes = {"gelu_tanh": _Gelu("tanh"), "gelu_erf": _Gelu("none"), "no_detach": _NoDetach(), "no_no_grad": _NoNoGrad()}
    with modes.get(name, contextlib.nullcontext()):
        yield
