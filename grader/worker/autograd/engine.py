"""PyTorch's backward engine, as `torch.autograd.grad` and `torch.autograd.backward` call it.

These two first compare shapes with the tools of torch.compile, for which they import sympy: more than a second in every
new process. The engine compares shapes itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.autograd.graph import _engine_run_backward

from grader.protocol import Backward


def start(device: str) -> None:
    """Have what a first convolution and its backward would wait for: a context, cuDNN, the engine's own thread."""
    x, weight = (torch.ones(1, 1, size, size, device=device, requires_grad=True) for size in (8, 3))
    output = torch.nn.functional.conv2d(x, weight)
    gradients([output], [x, weight], [torch.ones_like(output)])


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


def vector_jacobian_product(
    pairs: Sequence[tuple[object, torch.Tensor]],
    leaves: dict[str, torch.Tensor],
    wrt: Sequence[str],
    retain_graph: bool = False,
    create_graph: bool = False,
) -> dict[str, torch.Tensor | None]:
    """Gradients of the outputs that can be differentiated; None for an operand that none of them reaches."""
    live = [(output, g) for output, g in pairs if isinstance(output, torch.Tensor) and output.requires_grad]
    targets = [(name, leaves[name]) for name in wrt if name in leaves and leaves[name].requires_grad]
    found: dict[str, torch.Tensor | None] = dict.fromkeys(wrt)
    if live and targets:
        grads = gradients(
            [output for output, _ in live],
            [leaf for _, leaf in targets],
            [g for _, g in live],
            retain_graph=retain_graph or create_graph,
            create_graph=create_graph,
        )
        found.update({name: grad for (name, _), grad in zip(targets, grads, strict=True)})
    return found


def accumulated(
    pairs: Sequence[tuple[object, torch.Tensor]], leaves: dict[str, torch.Tensor], step: Backward
) -> dict[str, torch.Tensor | None]:
    """What the operands' `.grad` holds after a backward into it, which adds."""
    live = [(output, g) for output, g in pairs if isinstance(output, torch.Tensor) and output.requires_grad]
    if step.into == "fresh":
        for name in step.wrt:
            leaves[name].grad = None
    if live:
        accumulate([output for output, _ in live], [g for _, g in live], retain_graph=step.retain_graph)
    return {name: leaves[name].grad for name in step.wrt}


def differentiable_again(grads: dict[str, torch.Tensor | None]) -> bool:
    """Whether any gradient has a graph of its own."""
    live = [grad for grad in grads.values() if grad is not None and grad.requires_grad]
    return bool(live)
