"""Estimates K, the longest reduction behind a tensor, with which its tolerance grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from grader.grading.oracle.case import Table
from grader.grading.oracle.evaluation import Evaluation, Traits


def reduction_lengths(
    traits: Traits, inputs: Iterable[object], eager: Evaluation
) -> dict[Table, Callable[[torch.Tensor], float]]:
    """The function that returns K of a tensor, the longest reduction behind it, by table.

    K is estimated from the operations of matrix products and convolutions, the longest scan, and the sizes of inputs
    and outputs. A product of K terms costs 2K operations an element; a plain sum reads as many elements for each as
    the largest tensor has.
    """
    flops, scanned, tensors = traits.flops, traits.scanned, (*inputs, *eager.outputs.values())
    largest = max((value.numel() for value in tensors if isinstance(value, torch.Tensor)), default=1)

    def of_output(output: torch.Tensor) -> float:
        size = max(output.numel(), 1)
        return max(1.0, flops / (2 * size), largest / size, scanned)

    def of_gradient(gradient: torch.Tensor) -> float:
        """A broadcast vector's, as a bias's, is a sum over the broadcast dimensions; a matrix's is one of products."""
        size = max(gradient.numel(), 1)
        vector = sum(extent > 1 for extent in gradient.shape) <= 1
        return max(1.0, largest / size, scanned, 0.0 if vector else flops / (2 * size))

    return {"outputs": of_output, "buffers": of_output, "gradients": of_gradient}
