"""Values that a backward takes for constants: a term of a sum, a mean, the gate of an activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from grader.worker.autograd.one_slip import OneSlip
from grader.worker.autograd.other_functions import name_of

GATED = ("silu", "gelu", "hardswish", "mish")
"""Products of their argument and a gate that depends on it, by name."""


class Detached(OneSlip):
    """Lets no gradient flow through one operand of a function that a forward calls, or a gate."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        self._note((*args, *kwargs.values()))
        if isinstance(result, torch.Tensor) and result.requires_grad:
            for what, changed in _with_one_detached(function, args):
                if self._choice.chosen(what):
                    return function(*changed, **kwargs)
            name = name_of(function)
            if name in GATED and args and self._choice.chosen(f"the gate of `{name}` detached"):
                return args[0] * (result / args[0]).detach().nan_to_num(0.5)  # half open at 0, but for mish
        return result


def _with_one_detached(function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[tuple[str, list[Any]]]:
    """The arguments with each differentiable operand detached, if there are several."""
    listed = bool(args) and isinstance(args[0], list | tuple)  # as `cat` takes them
    given = list(args[0] if listed else args)
    differentiable = [
        at for at, operand in enumerate(given) if isinstance(operand, torch.Tensor) and operand.requires_grad
    ]
    for at in differentiable if len(differentiable) > 1 else ():
        changed = [*given[:at], given[at].detach(), *given[at + 1 :]]
        what = f"operand {at + 1}, of shape {list(given[at].shape)}, of `{name_of(function)}` detached"
        yield what, [changed, *args[1:]] if listed else changed
