"""PyTorch's backward engine, as `torch.autograd.grad` and `torch.autograd.backward` call it.

These two first compare shapes with the tools of torch.compile, for which they import sympy: more than a second in every
new process. The engine compares shapes itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.autograd.graph import _engine_run_backward


def gradients(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """As `torch.autograd.grad` with `allow_unused`: None for an input that no output depends on."""
    return _engine_run_backward(
        tuple(outputs),
        tuple(grad_outputs),
        retain_graph,
        create_graph,
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=False,
    )


def accumulate(
    outputs: Sequence[torch.Tensor], grad_outputs: Sequence[torch.Tensor], *, retain_graph: bool = False
) -> None:
    """As `torch.autograd.backward`: adds to `.grad` of every leaf."""
    _engine_run_backward(
        tuple(outputs), tuple(grad_outputs), retain_graph, False, (), allow_unreachable=True, accumulate_grad=True
    )
