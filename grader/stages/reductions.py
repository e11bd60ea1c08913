"""Estimates K, the longest reduction behind each tensor, which bounds how rounding errors grow."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from grader.models import Device
from grader.problem_module import ProblemModule, Variant


@dataclass(frozen=True)
class ReductionLengths:
    """From the floating-point operations of matrix products and convolutions, and from the sizes of what is summed."""

    flops: float
    """Of one forward, matrix products and convolutions only, a multiply-add counted as 2."""
    largest: int
    """Elements of the largest input or output."""

    @staticmethod
    def of(module: ProblemModule, variant: Variant, device: Device) -> ReductionLengths:
        """Counted on the meta device; a model that does not run there counts 0."""
        with torch.device("meta"), torch.no_grad():
            try:
                model = module.model_class(*variant.make_init_inputs())
                inputs = list(variant.make_inputs())
                with FlopCounterMode(display=False) as counter:
                    outputs = model(*inputs)
                flops = float(counter.get_total_flops())
            except Exception:  # whatever a model does not support on meta tensors
                return ReductionLengths(0.0, 1)
        tensors = [value for value in (*inputs, *_leaves(outputs)) if isinstance(value, torch.Tensor)]
        return ReductionLengths(flops, max((value.numel() for value in tensors), default=1))

    def of_output(self, output: torch.Tensor) -> float:
        """A product of K terms costs 2K operations an element; a plain sum reads largest / size elements for each."""
        size = max(output.numel(), 1)
        return max(1.0, self.flops / (2 * size), self.largest / size)

    def of_gradient(self, gradient: torch.Tensor) -> float:
        """A vector that is broadcast (a bias, a scale) sums what it was broadcast over; a matrix sums products."""
        size = max(gradient.numel(), 1)
        vector = sum(extent > 1 for extent in gradient.shape) <= 1
        return max(1.0, self.largest / size, 0.0 if vector else self.flops / (2 * size))


def _leaves(value: object) -> list[object]:
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in _leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [value]
