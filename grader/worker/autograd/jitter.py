"""Noise in what operators choose elements by: it shows which indices a tie leaves open.

Behind a clamp or a saturated softmax, elements are equal that noise on inputs does not tell apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import finfo  # that of the dtype: a float64 forward sees another one in `torch`
from torch.utils._pytree import tree_leaves, tree_map_only

from grader import protocol as p
from grader.worker.autograd.engine import OperatorMode

CONVERSIONS = ("_to_copy", "copy_")
"""Operators that make integers of floats one by one."""


class Jittered(OperatorMode):
    """Adds noise to the operands of operators that return indices, such as argmax, topk and sort.

    A conversion of what its integer type cannot hold has a random result: processors differ there.
    """

    def __init__(self, jitter: p.Jitter) -> None:
        super().__init__()
        self._size, self._sign = jitter.size, -1 if jitter.turn % 2 else 1
        self._seed = jitter.turn // 2
        self._generator: torch.Generator | None = None
        self.name = ""
        """The last operator whose operands got noise; empty if none did."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, function.overloadpacket.__name__
        result = function(*args, **kwargs)
        if name in CONVERSIONS:
            source = args[1] if name == "copy_" else args[0]
            return self._converted(source, result)
        if not _chooses(function, (args, kwargs), result):
            return result
        self.name = name
        args, kwargs = tree_map_only(torch.Tensor, self._moved, (args, kwargs))
        return function(*args, **kwargs)

    def _converted(self, source: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        if not source.is_floating_point() or result.dtype is torch.bool or not _is_integer(result):
            return result
        ends = torch.iinfo(result.dtype)
        outside = ~((source > ends.min - 1.0) & (source < ends.max + 1.0))
        drawn = torch.empty_like(result).random_(ends.min, ends.max, generator=self._of(result))
        return result.copy_(torch.where(outside, drawn, result))

    def _moved(self, value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        noise = self._sign * torch.randn(value.shape, generator=self._of(value), device=value.device)
        finite = value.isfinite()
        size = value.abs()
        some = size[finite & (value != 0)]
        floor = some.float().median() if some.numel() else 1.0
        moved = (value + self._size * noise * (size + floor)).to(value.dtype)
        # Infinite elements, such as masked scores, tie beyond all others.
        largest = torch.where(value < 0, -1.0, 1.0) * finfo(value.dtype).max
        return torch.where(finite, moved, (largest * (0.5 + noise.sigmoid() / 2)).to(value.dtype))

    def _of(self, like: torch.Tensor) -> torch.Generator:
        """Its own generator, on the device of the first operand: the model's random numbers stay as they are."""
        if self._generator is None:
            self._generator = torch.Generator(like.device).manual_seed(self._seed)
        return self._generator


def _chooses(function: Any, arguments: Any, result: Any) -> bool:
    """Whether an operator returns indices, and by its arguments so many of them."""
    floats = any(isinstance(value, torch.Tensor) and value.is_floating_point() for value in tree_leaves(arguments))
    indices = any(isinstance(value, torch.Tensor) and value.dtype is torch.int64 for value in tree_leaves(result))
    return floats and indices and torch.Tag.dynamic_output_shape not in function.tags


def _is_integer(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex())
