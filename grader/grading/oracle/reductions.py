"""Estimates K, the longest reduction behind each tensor, which bounds how rounding errors grow."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ReductionLengths:
    """From the operations of matrix products and convolutions, the sizes of what is summed, and scans."""

    flops: float
    """Of one forward, matrix products and convolutions only, a multiply-add counted as 2."""
    largest: int
    """Elements of the largest input or output."""
    scanned: int = 0
    """Elements of the longest running sum or product, the last of which hang on as many, in whatever they end up."""

    def of_output(self, output: torch.Tensor) -> float:
        """A product of K terms costs 2K operations an element; a plain sum reads largest / size elements for each."""
        size = max(output.numel(), 1)
        return max(1.0, self.flops / (2 * size), self.largest / size, self.scanned)

    def of_gradient(self, gradient: torch.Tensor) -> float:
        """A vector that is broadcast (a bias, a scale) sums what it was broadcast over; a matrix sums products."""
        size = max(gradient.numel(), 1)
        vector = sum(extent > 1 for extent in gradient.shape) <= 1
        return max(1.0, self.largest / size, self.scanned, 0.0 if vector else self.flops / (2 * size))
