"""The longest reduction behind each tensor, which bounds the rounding that it may accumulate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.grading.oracle.case import Table
from grader.grading.oracle.evaluation import Evaluation, Pass, Traits


@dataclass(frozen=True)
class ReductionLengths:
    """Estimates from the counted operations, the sizes of tensors, and the lengths of scans."""

    flops: float
    """Operations of one forward's matrix products and convolutions; a multiply-add counts as 2."""
    largest: int
    """Elements of the largest input or output."""
    scanned: int = 0
    """Elements of the longest running sum or product: its last element depends on all of them."""

    def of_output(self, output: torch.Tensor) -> float:
        """K of an output.

        A matrix product of K terms costs 2K operations an element. A plain sum reads largest / size elements for each.
        """
        size = max(output.numel(), 1)
        return max(1.0, self.flops / (2 * size), self.largest / size, self.scanned)

    def of_gradient(self, gradient: torch.Tensor) -> float:
        """K of a gradient.

        The gradient of a broadcast vector, such as a bias or a scale, is a sum over the broadcast dimensions. The
        gradient of a matrix is a sum of products.
        """
        size = max(gradient.numel(), 1)
        vector = sum(extent > 1 for extent in gradient.shape) <= 1
        return max(1.0, self.largest / size, self.scanned, 0.0 if vector else self.flops / (2 * size))


def reduction_lengths(plain: Pass, eager: Evaluation, traits: Traits) -> dict[Table, Callable[[torch.Tensor], float]]:
    """The function that returns K of a tensor, by table."""
    sizes = [value.numel() for value in (*plain.inputs, *eager.outputs.values()) if isinstance(value, torch.Tensor)]
    of = ReductionLengths(traits.flops, max(sizes, default=1), traits.scanned)
    return {"outputs": of.of_output, "buffers": of.of_output, "gradients": of.of_gradient}
