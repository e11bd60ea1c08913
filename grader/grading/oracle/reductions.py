"""Estimates K, the length of the longest reduction behind a tensor, which bounds rounding errors."""

from __future__ import annotations

from dataclasses import dataclass

import torch


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
