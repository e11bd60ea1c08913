"""Which operators are products, and how many floating-point operations they take."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch


@cache
def flop_formulas() -> Mapping[Any, Callable[..., int]]:
    """Return the formulas of FlopCounterMode, by operator, with another for a convolution's backward.

    The mode itself asks each operator for a decomposition, which takes seconds of imports. Triton, which its module
    imports in a tenth of a second to count Triton's own kernels, is hidden from it unless it is imported already.
    """
    hidden = "triton" not in sys.modules
    if hidden:
        sys.modules["triton"] = None  # type: ignore[assignment]
        logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)  # it would warn
    try:
        from torch.utils.flop_counter import flop_registry
    finally:
        if hidden:
            del sys.modules["triton"]
    return {**flop_registry, torch.ops.aten.convolution_backward: _convolution_backward}


def _convolution_backward(
    grad_output: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *others: Any, **_: Any
) -> int:
    """Return the operations of the gradients of the input and of the weight, if they are asked for.

    Each has the products of the forward in it. PyTorch's formula has the weight's gradient take so many times more as
    there are groups.
    """
    from torch.utils.flop_counter import conv_flop_count

    transposed, output_mask = others[4], others[7]
    forward: int = conv_flop_count(list(x.shape), list(weight.shape), list(grad_output.shape), transposed)
    return forward * int(sum(output_mask[:2]))
