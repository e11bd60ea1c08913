"""A forward and a backward on tensors between redzones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.protocol import Guard, Guarded
from grader.worker.autograd.tensors import state_of
from grader.worker.checks.redzones import Redzones

if TYPE_CHECKING:
    from grader.worker.session import Bench


def guard(bench: Bench, step: Guard) -> Guarded:
    """Which redzones were written to, around operands, outputs, gradients, grad_outputs and what came in between."""
    zones = Redzones(step.fill)
    tensors = {**state_of(bench.models[step.forward.model]), **bench.inputs[step.forward.inputs].leaves}
    held = {name: value.data for name, value in tensors.items()}
    try:
        for name, value in tensors.items():
            value.data = zones.copy(value, name)
        with zones:
            outputs = bench.call_forward(step.forward)
            if step.backward is not None:
                bench.backward(step.backward)
        bench.synchronize()
    finally:
        for name, value in held.items():
            tensors[name].data = value
    for name, output in outputs.items():
        zones.rename(output, name)
    if step.backward is not None:
        for name, gradient in bench.grads[step.backward.grads].items():
            zones.rename(gradient, f"grad:{name}")
        for name, given in bench.given[step.backward.grads].items():
            zones.rename(given, f"cotangent:{name}")
    return Guarded(breaches=zones.breaches())
