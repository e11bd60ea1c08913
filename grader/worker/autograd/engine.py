"""Calls PyTorch's backward engine, and watches operators, without imports that take seconds.

`torch.autograd.grad` and `torch.autograd.backward` first compare shapes with the tools of torch.compile and import
sympy for that, which takes more than a second in every new process. The engine compares shapes itself. A mode
that may skip Dynamo's frames imports all of torch.compile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import monotonic

import torch
from torch.autograd.graph import _engine_run_backward
from torch.utils._python_dispatch import TorchDispatchMode

from grader.protocol import Backward

SYNCHRONIZED = 64
"""Operators between waits for a GPU, whose queue may hold seconds of work. A choice."""


class TooLong(Exception):
    """Watching operators takes too long."""


class OperatorMode(TorchDispatchMode):
    """Gets every operator below autograd while it is active.

    PyTorch may take slow formulas then: in 2.11, the backward of `cumprod` takes a step for each element along the
    dimension, which are minutes at full size.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._deadline, self._operators = monotonic() + seconds, 0

    def check_time(self) -> None:
        """Count an operator. Raises TooLong after the seconds, for which it waits for the device now and then."""
        if self._operators % SYNCHRONIZED == 0 and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        self._operators += 1
        if monotonic() > self._deadline:
            raise TooLong

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def start(device: str) -> None:
    """Run a convolution, a product and their backwards.

    They create the GPU's context, cuDNN, cuBLAS and the engine's thread.
    """
    x, weight = (torch.ones(1, 1, size, size, device=device, requires_grad=True) for size in (8, 3))
    output = torch.nn.functional.conv2d(x, weight)
    output = output @ output
    gradients([output], [x, weight], [torch.ones_like(output)])


def gradients(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """Like `torch.autograd.grad` with `allow_unused`: None for an input that no output depends on."""
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
    """Like `torch.autograd.backward`: adds to `.grad` of every leaf."""
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
    """Differentiate the outputs that require a gradient; None for an operand that none of them depends on."""
    live = [(output, g) for output, g in pairs if isinstance(output, torch.Tensor) and output.requires_grad]
    targets = [(name, leaves[name]) for name in wrt if name in leaves and leaves[name].requires_grad]
    products: dict[str, torch.Tensor | None] = dict.fromkeys(wrt)
    if live and targets:
        grads = gradients(
            [output for output, _ in live],
            [leaf for _, leaf in targets],
            [g for _, g in live],
            retain_graph=retain_graph or create_graph,
            create_graph=create_graph,
        )
        products.update({name: grad for (name, _), grad in zip(targets, grads, strict=True)})
    return products


def accumulated(
    pairs: Sequence[tuple[object, torch.Tensor]], leaves: dict[str, torch.Tensor], step: Backward
) -> dict[str, torch.Tensor | None]:
    """Run a backward that adds to `.grad`, cleared first if requested, and return each operand's `.grad`."""
    live = [(output, g) for output, g in pairs if isinstance(output, torch.Tensor) and output.requires_grad]
    operands = {name: leaves[name] for name in step.wrt if name in leaves}
    if step.into == "fresh":
        for leaf in operands.values():
            leaf.grad = None
    if live:
        accumulate([output for output, _ in live], [g for _, g in live], retain_graph=step.retain_graph)
    return dict.fromkeys(step.wrt) | {name: leaf.grad for name, leaf in operands.items()}
