"""Options of functions other than given: at their defaults, turned, or another one of a few."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from grader.worker.autograd.backward_slips import FLAGS
from grader.worker.autograd.one_slip import Slips
from grader.worker.autograd.spelled_out import STEPS

MODES_OF_A_CALL = ("training", "inplace", "dtype", "dim")
"""Options that say how a function computes, and not what; another dimension is a slip of its own."""
CHOICES = {
    ("grid_sample", "mode"): ("bilinear", "nearest", "bicubic"),
    ("grid_sample", "padding_mode"): ("zeros", "border", "reflection"),
    ("interpolate", "mode"): ("nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear", "bicubic"),
    ("pad", "mode"): ("constant", "reflect", "replicate", "circular"),
}
"""What an option may be, by the function and the option."""


def other_options(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """Options that are at their defaults, and flags that are not as given."""
    signature = _signature(function)
    if signature is None:
        return
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # another overload
        return
    left: dict[str, Any] = {}
    other: Any
    for option, parameter in signature.parameters.items():
        default = parameter.default
        if default is parameter.empty or option in MODES_OF_A_CALL or option.startswith("_"):
            continue
        given = bound.arguments.get(option, default)
        given = list(given) if isinstance(given, tuple) else given
        for choice in CHOICES.get((function.__name__, option), ()):
            if choice != given:
                call = inspect.BoundArguments(signature, bound.arguments | {option: choice})
                yield (
                    f"`{option}` of `{function.__name__}` set to {choice}",
                    partial(function, *call.args, **call.kwargs),
                )
        if given is default or (not isinstance(given, torch.Tensor) and given == default):
            if not isinstance(default, bool) or option not in FLAGS:
                continue
            other, what = not default, f"`{option}` of `{function.__name__}` set to {not default}"
        elif default is None and isinstance(given, bool):  # without it, the function chooses the same and warns
            other, what = not given, f"`{option}` of `{function.__name__}` set to {not given}"
        else:
            other, what = default, f"`{option}` of `{function.__name__}` at its default, {default}"
            left[option] = other
        changed = inspect.BoundArguments(signature, bound.arguments | {option: other})
        yield what, partial(function, *changed.args, **changed.kwargs)
    if len(left) > 1:
        changed = inspect.BoundArguments(signature, bound.arguments | left)
        what = f"{' and '.join(f'`{option}`' for option in left)} of `{function.__name__}` at their defaults"
        yield what, partial(function, *changed.args, **changed.kwargs)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """A function's in torch.nn.functional; that of a builtin one is its operator's."""
    name = getattr(function, "__name__", "")
    if function not in STEPS and vars(functional).get(name) is not function:
        return None
    try:
        return inspect.signature(STEPS.get(function, function))
    except ValueError:
        operator = getattr(getattr(torch.ops.aten, name, None), "default", None)
    if operator is None:
        return None
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    arguments = operator._schema.arguments
    defaults = [
        argument.default_value if argument.has_default_value() else inspect.Parameter.empty for argument in arguments
    ]
    named = zip(arguments, defaults, strict=True)
    try:
        return inspect.Signature(
            [inspect.Parameter(argument.name, kind, default=default) for argument, default in named]
        )
    except ValueError:  # a default before an argument that has none
        return None
