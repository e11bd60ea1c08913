"""Values that a backward takes for constants (a term, a mean, a gate), and masks the other way round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from grader.worker.autograd.one_slip import OneSlip, with_gradient_of
from grader.worker.autograd.other_functions import name_of
from grader.worker.autograd.spelled_out import STEPS

GATED = ("silu", "gelu", "hardswish", "mish")
"""Products of their argument and a gate that depends on it, by name."""
MASKED = ("relu", "clamp", "clamp_min", "clamp_max", "clip", "relu6", "hardtanh")
"""Functions with the derivative 1 or 0 for their argument, by name."""
STATISTICS = ("mean", "var", "std", "norm", "vector_norm", "linalg_norm", "linalg_vector_norm", "amax", "amin")
"""Functions whose results a norm or a softmax is scaled and shifted by, by name."""


class Detached(OneSlip):
    """Lets no gradient flow through an operand or gate of a function that a forward calls, or by its mask."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = self._by_steps(function, args, kwargs) if function in STEPS else function(*args, **kwargs)
        self._note((*args, *kwargs.values()))
        if isinstance(result, torch.Tensor) and result.requires_grad:
            for what, changed in _with_one_detached(function, args):
                if self._choice.chosen(what):
                    return function(*changed, **kwargs)
            name = name_of(function)
            if name in STATISTICS and self._choice.chosen(f"the result of `{name}` taken for a constant"):
                return result.detach()
            if name in GATED and args and self._choice.chosen(f"the gate of `{name}` detached"):
                return args[0] * (result / args[0]).detach().nan_to_num(0.5)  # half open at 0, but for mish
            for what, other in _by_the_other_mask(function, args, result):
                if self._choice.chosen(what):
                    return with_gradient_of(other, result)
        return result


def _by_the_other_mask(
    function: Callable[..., Any], args: tuple[Any, ...], result: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """What has a gradient where the result has none, and none where it has: the mask the other way round."""
    name, what = name_of(function), "the mask of `{}` the other way round"
    if name in ("minimum", "maximum") or (name in ("min", "max") and len(args) == 2 and not isinstance(args[1], int)):
        yield what.format(name), args[0] + args[1] - result
    elif name in MASKED and args and args[0].shape == result.shape:
        yield what.format(name), args[0] - result
    elif name == "where" and len(args) == 3:
        yield what.format(name), function(args[0], args[2], args[1])


def _with_one_detached(function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[tuple[str, list[Any]]]:
    """The arguments with each differentiable operand detached, if there are several."""
    listed = bool(args) and isinstance(args[0], list | tuple)  # as `cat` takes them
    given = list(args[0] if listed else args)
    differentiable = [
        at for at, operand in enumerate(given) if isinstance(operand, torch.Tensor) and operand.requires_grad
    ]
    name = name_of(function)
    equation = [operand for operand in given[:1] if isinstance(operand, str)]  # of an einsum
    called = f"`{name}`" if not equation else f'`{name}("{equation[0]}")`'
    for at in differentiable if len(differentiable) > 1 else ():
        changed = [*given[:at], given[at].detach(), *given[at + 1 :]]
        what = f"operand {at + 1 - len(equation)}, of shape {list(given[at].shape)}, of {called} detached"
        yield what, [changed, *args[1:]] if listed else changed
