"""Mistakes with labels that a loss ignores: taken for a class, or counted in the mean."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.nn import functional

from grader.worker.autograd.one_slip import Slips

_LOSSES = (functional.cross_entropy, functional.nll_loss)


def counted(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """A loss whose ignored labels, if there are any, are not ignored."""
    if function not in _LOSSES:
        return
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    scores, target = given["input"], given["target"]
    ignored = target == given.get("ignore_index", -100)
    if target.is_floating_point() or not bool(ignored.any()):
        return
    classes, name = scores.shape[-1 if scores.dim() == 1 else 1], function.__name__
    for chosen in dict.fromkeys((0, classes - 1)):
        changed = given | {"target": target.where(~ignored, chosen)}
        yield f"the labels that `{name}` ignores taken for class {chosen}", partial(function, **changed)
    if given.get("reduction", "mean") == "mean" and given.get("weight") is None:
        share = (~ignored).sum() / ignored.numel()
        yield f"the mean of `{name}` over all labels, ignored ones too", lambda: function(**given) * share
