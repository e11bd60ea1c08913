"""Creates tensors in float64 where a model's forward names no dtype.

Its parameters and inputs are float64 then, and a product or a scatter of theirs with a float32 `torch.zeros(n)` raises.
A default dtype of float64 would make random functions draw other numbers than in float32, as would `torch.empty(n)`
that is filled by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

FACTORIES = frozenset(
    {torch.zeros, torch.ones, torch.full, torch.eye, torch.arange, torch.linspace, torch.logspace}
    | {torch.tensor, torch.as_tensor, torch.asarray}
)


class _InFloat64(TorchFunctionMode):
    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        converts = function in FACTORIES and result.dtype is torch.float32 and (kwargs or {}).get("dtype") is None
        return result.double() if converts else result


def create_in_float64(model: nn.Module) -> None:
    """Have the forwards of this float64 model create in float64 what has the default dtype, float32."""
    forward = model.forward

    def creating(*args: object, **kwargs: object) -> object:
        with _InFloat64():
            return forward(*args, **kwargs)

    model.forward = creating
