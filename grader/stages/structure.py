"""What every draw of an input has and a kernel may build on: zeros in the same places, and symmetry.

A kernel for triangular matrices never reads the zeros, one for symmetric matrices half of what it is given. So where a
probe changes elements, zeros of every draw stay as they are, and an element's mirror image changes with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from grader.stages.drawing import is_float, is_mask, whole_numbers

DRAWS = 3
"""Zeros in the same place of so many: of what a ReLU left, one in eight."""
EDITS = 3
"""Elements that an edited input differs in: too few for a checksum over a sample to notice."""


class Structure:
    """Of one input."""

    def __init__(self, draws: Sequence[torch.Tensor]) -> None:
        """`draws`: of one input, at least one of them."""
        alike = [draw for draw in draws if draw.shape == draws[0].shape]
        self._shape = draws[0].shape
        self.symmetric = self._has_square_matrices() and all(torch.equal(draw, draw.mT) for draw in alike)
        free = _not_always_zero(alike)
        self.free = free.triu() if self.symmetric else free
        """What may change: of symmetric matrices, on and above the diagonal."""

    def changed(self, value: torch.Tensor, elements: Mapping[int, float]) -> torch.Tensor:
        """A contiguous copy with these elements, by their place in row-major order, and what goes with each."""
        copy = value.clone(memory_format=torch.contiguous_format)
        for where, element in elements.items():
            copy.view(-1)[where] = element
            copy.view(-1)[self._mirrored(where)] = element
        return copy

    def edited(self, value: torch.Tensor) -> torch.Tensor:
        """A copy with EDITS elements replaced."""
        flat, free = value.reshape(-1), self._places(value)
        if not free.numel():
            return value.clone()
        where = free[torch.randint(free.numel(), (EDITS,), device=free.device)]
        codes = self.other_codes(value, float(flat[where[0]]))
        if codes.numel():
            made = codes[torch.randint(codes.numel(), (EDITS,), device=codes.device)]
        else:
            made = -2 * flat[where] - 1
        return self.changed(value, dict(zip(where.tolist(), made.tolist(), strict=True)))

    def other_codes(self, value: torch.Tensor, code: float) -> torch.Tensor:
        """Of whole numbers, which may be codes or indices, those that are not this one; of others none."""
        there = value.reshape(-1)[self._places(value)] if whole_numbers(value) else value.reshape(-1)[:0]
        return there[there != code]

    def slopes(self, gradient: torch.Tensor) -> torch.Tensor:
        """What a number with this gradient moves by for each element that may change, and what goes with it; flat."""
        if self.symmetric:
            gradient = gradient + gradient.mT.triu(1) + gradient.mT.tril(-1)
        return (gradient * self.free.to(gradient.device)).reshape(-1)

    def _places(self, value: torch.Tensor) -> torch.Tensor:
        return self.free.reshape(-1).nonzero().reshape(-1).to(value.device)

    def _has_square_matrices(self) -> bool:
        return len(self._shape) >= 2 and self._shape[-1] == self._shape[-2] > 1

    def _mirrored(self, where: int) -> int:
        if not self.symmetric:
            return where
        extent = self._shape[-1]
        matrix, inner = divmod(where, extent * extent)
        row, column = divmod(inner, extent)
        return matrix * extent * extent + column * extent + row


def _not_always_zero(draws: Sequence[torch.Tensor]) -> torch.Tensor:
    """All of what is a mask, or zeros alone: these zeros say something."""
    somewhere = torch.zeros(draws[0].shape, dtype=torch.bool, device=draws[0].device)
    if is_float(draws[0]) and not is_mask(draws[0]):
        for draw in draws:
            somewhere |= (draw != 0).to(somewhere.device)
    return somewhere if bool(somewhere.any()) else ~somewhere
