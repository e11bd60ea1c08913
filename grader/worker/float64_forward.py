"""Keeps a forward in float64 the function that it is in the problem's own dtype.

Its parameters and inputs are float64. What it derives from their dtype would be another function:
`torch.finfo(x.dtype)` bounds a logarithm elsewhere, and `torch.randn(n, dtype=x.dtype)` draws other numbers under the
same seed. What it creates without a dtype is float32, so that a product or a scatter with it raises; a default dtype of
float64 would make random functions draw other numbers too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

FACTORIES = frozenset(
    {torch.zeros, torch.ones, torch.full, torch.eye, torch.arange, torch.linspace, torch.logspace}
    | {torch.tensor, torch.as_tensor, torch.asarray}
)
DRAWS = frozenset({torch.randn, torch.rand, torch.randn_like, torch.rand_like, torch.normal, torch.bernoulli})
DRAWS_IN_PLACE = frozenset(
    {torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_, torch.Tensor.exponential_}
    | {torch.Tensor.log_normal_, torch.Tensor.cauchy_, torch.Tensor.geometric_}
)
"""Random functions whose numbers depend on the dtype, on the CPU or on a GPU. That of dropout does not."""


class _InOwnDtype(TorchFunctionMode):
    """Draws in the problem's dtype what would be float64, and, with `creates`, creates in float64."""

    def __init__(self, dtype: torch.dtype, creates: bool) -> None:
        super().__init__()
        self._dtype, self._creates = dtype, creates

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if function in DRAWS and any(map(_is_double, (*args, *given.values()))):
            return self._drawn(function, args, given).double()
        if function in DRAWS_IN_PLACE and _is_double(args[0]):
            return args[0].copy_(self._drawn(function, args, given))
        result = function(*args, **given)
        converts = self._creates and function in FACTORIES and given.get("dtype") is None
        return result.double() if converts and result.dtype is torch.float32 else result

    def _drawn(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The function's result for the problem's dtype in place of float64."""

        def narrower(value: Any) -> Any:
            if not _is_double(value):
                return value
            return value.to(self._dtype) if isinstance(value, torch.Tensor) else self._dtype

        return function(*map(narrower, args), **{name: narrower(value) for name, value in kwargs.items()})


def _is_double(value: object) -> bool:
    """Whether the value is a float64 tensor, or the dtype."""
    return value is torch.float64 or (isinstance(value, torch.Tensor) and value.dtype is torch.float64)


def keep_function(model: nn.Module, dtype: torch.dtype, *, creates: bool) -> None:
    """Have the forwards of this float64 model compute what they compute in `dtype`.

    `creates`: what they create in the default dtype, float32, becomes float64. A forward that asks for float64 itself
    gets `dtype` as well: the dtype does not say who asked.
    """
    forward, finfo = model.forward, torch.finfo

    def own(of: torch.dtype = torch.float32) -> torch.finfo:
        return finfo(dtype if of is torch.float64 else of)

    def in_own_dtype(*args: object, **kwargs: object) -> object:
        with _InOwnDtype(dtype, creates), patch.object(torch, "finfo", own):
            return forward(*args, **kwargs)

    model.forward = in_own_dtype
