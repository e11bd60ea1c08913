"""Operands that a backward takes for constants: a term of a sum, or a statistic such as a mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from grader.worker.autograd.one_slip import OneSlip
from grader.worker.autograd.other_functions import name_of


class Detached(OneSlip):
    """Lets no gradient flow through one of several operands of a function that a forward calls."""

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
        return result


def _with_one_detached(function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[tuple[str, list[Any]]]:
    """The arguments with each differentiable operand detached, if there are several."""
    listed = bool(args) and isinstance(args[0], list | tuple)  # as `cat` takes them
    given = list(args[0] if listed else args)
    differentiable = [at for at, of in enumerate(given) if isinstance(of, torch.Tensor) and of.requires_grad]
    for at in differentiable if len(differentiable) > 1 else ():
        changed = [*given[:at], given[at].detach(), *given[at + 1 :]]
        what = f"operand {at + 1}, of shape {list(given[at].shape)}, of `{name_of(function)}` detached"
        yield what, [changed, *args[1:]] if listed else changed
