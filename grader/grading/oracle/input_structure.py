"""Properties of an input in every draw that a kernel may rely on: zeros, symmetry, sums, range.

A kernel for triangular matrices never reads the zeros, one for symmetric matrices reads half of them, one for
probabilities knows their sum, one for rows of several lengths counts from start to start, and a reference may reject
inputs without such a property. Changes to an input therefore keep them: elements that are 0 in every draw stay 0,
starts in ascending order stay, the mirror image of an element changes with it, two elements trade places if all rows
have the same sum, new values are other values of the same tensor, and no value becomes negative or exceeds 1 where none
is or does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from grader.grading import chance
from grader.grading.compare.expected import ELEMENT_TOLERANCE
from grader.grading.oracle.values import as_before, as_real, is_float, is_mask, values_of

EDITS = 3
"""Elements that change in an edited input. A choice: too few for a checksum over a sample of the elements to notice."""


class Structure:
    """The properties of one input."""

    def __init__(self, draws: Sequence[torch.Tensor], apart: Sequence[int] = ()) -> None:
        """`draws` are draws of one input, at least one. `apart` are integers that the reference treats apart."""
        alike = [draw for draw in draws if draw.shape == draws[0].shape]
        self._shape = draws[0].shape
        self.symmetric = self._has_square_matrices() and all(torch.equal(draw, draw.mT) for draw in alike)
        free = _not_always_zero(alike)
        free = free.triu() if self.symmetric else free  # the lower triangle follows the upper one
        self.ascends = _ascend(alike)
        """These are starts or ends of rows in ascending order."""
        free = free & False if self.ascends else free
        self._places = None if bool(free.all()) else free.reshape(-1).nonzero().reshape(-1)
        self.sums_alike = not self.symmetric and _sums_alike(alike)
        """All rows of all draws have the same sum, as probabilities have."""
        self.count = free.numel() if self._places is None else len(self._places)
        """The number of elements that may change independently."""
        self.low, self.high = _range(alike)
        """The evident bounds of a value: 0 if none is negative, 1 if none exceeds it."""
        self.fixed = len(alike) > 1 and all(torch.equal(alike[0], draw) for draw in alike[1:])
        """All draws are the same."""
        self.dense = self._places is None and not self.symmetric and not self.sums_alike
        """Any element may change alone."""
        self.repeats = _are_integers(draws[0]) and any(map(_repeats, alike))
        """These are integers that repeat, and so no permutation."""
        self.largest = max(int(draw.max()) for draw in alike) if self.repeats else 0
        """The largest integer of all draws."""
        smallest = min(int(draw.min()) for draw in alike) if self.repeats else 0
        inside = [code for code in apart if smallest <= code <= self.largest]
        self.pads = bool(inside)
        """The reference treats an integer in the range of all draws apart."""
        self.padding = min(inside, default=smallest)
        """That integer, or the smallest one."""

    def place(self, ordinal: int) -> int:
        """The row-major position of the ordinal-th element that may change."""
        return ordinal if self._places is None else int(self._places[ordinal])

    def changed(self, value: torch.Tensor, elements: Mapping[int, float]) -> torch.Tensor:
        """A contiguous copy with new values for elements, by row-major position, and for their mirror images."""
        copy = value.clone(memory_format=torch.contiguous_format)
        for where, element in elements.items():
            copy.view(-1)[where] = element
            copy.view(-1)[self._mirrored(where)] = element
        return copy

    def edited(self, value: torch.Tensor) -> torch.Tensor:
        """A copy with EDITS elements replaced, of a complex one real or imaginary parts."""
        if value.is_complex():
            pairs = as_real(value)
            return as_before(Structure([pairs]).edited(pairs), value)
        if not self.count:
            return value.clone()
        copy = value
        for _ in range(EDITS):
            copy = self.changed(copy, self.usual(copy, self.place(chance.draw.randrange(self.count))))
        return copy

    def usual(self, value: torch.Tensor, where: int) -> dict[int, float]:
        """New values by position that change the element at `where`.

        Values come from the tensor itself; if all its elements are equal, the new value is far from them.
        """
        old = float(value.reshape(-1)[where])
        if self.sums_alike:
            partners = self._row(value, where)
            partners = partners[value.reshape(-1)[partners] != old]
            if len(partners):
                partner = int(partners[chance.draw.randrange(len(partners))])
                return {where: float(value.reshape(-1)[partner]), partner: old}
        values = self._free(value)
        others = values[values != old]
        other = float(others[chance.draw.randrange(len(others))]) if len(others) else self.moved(old, -3 * old - 1)
        return {where: other}

    def moved(self, old: float, step: float) -> float:
        """The value moved by `step`, or in the other direction if that is out of range."""
        moved = next((new for new in (old + step, old - step) if self.low <= new <= self.high), None)
        if moved is not None:
            return moved
        quarter = (self.high - self.low) / 4
        return self.low + quarter if old > self.low + 2 * quarter else self.high - quarter

    def elementwise(self, value: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """A contiguous copy with a function applied to all elements that may change."""
        if self._places is None and not self.symmetric:
            return change(value).contiguous()
        flat = value.reshape(-1).clone()
        places = _not_always_zero([value]).reshape(-1) if self.symmetric else torch.zeros_like(flat, dtype=torch.bool)
        if self._places is not None and not self.symmetric:
            places[self._places.to(flat.device)] = True
        flat[places] = change(flat[places])
        return flat.view(value.shape)

    def slopes(self, gradient: torch.Tensor) -> torch.Tensor:
        """The derivative by each element that may change, with its mirror image; flat, 0 for other elements.

        `gradient` is the gradient of a scalar with respect to the whole input.
        """
        if self.symmetric:
            gradient = gradient + gradient.mT.triu(1) + gradient.mT.tril(-1)
        if self._places is None:
            return gradient.reshape(-1)
        slopes = gradient.new_zeros(gradient.numel())
        slopes[self._places.to(slopes.device)] = self._free(gradient)
        return slopes

    def _free(self, value: torch.Tensor) -> torch.Tensor:
        """The elements that may change; flat."""
        flat = value.reshape(-1)
        return flat if self._places is None else flat[self._places.to(flat.device)]

    def _row(self, value: torch.Tensor, where: int) -> torch.Tensor:
        """The positions in an element's row that may change."""
        first = where - where % self._shape[-1]
        row = torch.arange(first, first + self._shape[-1], device=value.device)
        return row if self._places is None else row[torch.isin(row, self._places.to(value.device))]

    def _has_square_matrices(self) -> bool:
        return len(self._shape) >= 2 and self._shape[-1] == self._shape[-2] > 1

    def _mirrored(self, where: int) -> int:
        if not self.symmetric:
            return where
        extent = self._shape[-1]
        matrix, inner = divmod(where, extent * extent)
        row, column = divmod(inner, extent)
        return matrix * extent * extent + column * extent + row


def _are_integers(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)


def _repeats(draw: torch.Tensor) -> bool:
    return bool((draw.reshape(-1).sort().values.diff() == 0).any())


def _ascend(draws: Sequence[torch.Tensor]) -> bool:
    """Whether all are integers in ascending order along the last dimension, and not all equal: starts or ends of rows.

    Two numbers may be in order by chance, unless they are the same in every draw.
    """
    one = draws[0]
    if not _are_integers(one) or not one.dim() or one.shape[-1] < 2:
        return False
    steps = [draw.diff() for draw in draws]
    by_chance = one.shape[-1] == 2 and not all(torch.equal(one, draw) for draw in draws[1:])
    return not by_chance and all(bool((step >= 0).all() and step.any()) for step in steps)


def _sums_alike(draws: Sequence[torch.Tensor]) -> bool:
    """Whether all sums along the last dimension are equal: probabilities and one-hot rows."""
    one = draws[0]
    if not is_float(one) or one.dim() == 0 or one.shape[-1] < 2 or not one.numel():
        return False
    sums = torch.cat([draw.to(one.device).sum(-1, dtype=torch.float64).reshape(-1) for draw in draws])
    alike = bool(sums[0] != 0) and bool(((sums - sums[0]).abs() <= ELEMENT_TOLERANCE * sums[0].abs()).all())
    return alike and (not values_of(one).whole or (is_mask(one) and bool(sums[0] == 1)))


def _range(draws: Sequence[torch.Tensor]) -> tuple[float, float]:
    """The bounds among -1, 0 and 1 that all elements of all draws keep; infinite where there is none."""
    if not is_float(draws[0]) or not draws[0].numel():
        return -math.inf, math.inf
    low = min(float(draw.min()) for draw in draws)
    high = max(float(draw.max()) for draw in draws)
    unit = high <= 1 and low >= -1
    return 0.0 if low >= 0 else -1.0 if unit else -math.inf, 1.0 if unit else 0.0 if high <= 0 else math.inf


def _not_always_zero(draws: Sequence[torch.Tensor]) -> torch.Tensor:
    """A mask of the elements that some draw has other than 0; all True for masks and zeros, which carry information."""
    somewhere = torch.zeros(draws[0].shape, dtype=torch.bool, device=draws[0].device)
    if is_float(draws[0]) and not is_mask(draws[0]):
        for draw in draws:
            somewhere |= (draw != 0).to(somewhere.device)
    return somewhere if bool(somewhere.any()) else ~somewhere
