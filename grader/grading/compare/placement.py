"""The place of a reference's tensor in a candidate: in which tensor, in which order, in which part."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from grader.protocol import TensorInfo


class Block(NamedTuple):
    """A part of a tensor along one dimension."""

    axis: int
    start: int
    length: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of the part."""
        return tensor.narrow(self.axis, self.start, self.length)


@dataclass(frozen=True)
class Place:
    """The place of one reference tensor among the candidate's tensors.

    The candidate has `value.permute(order).reshape(...)`, in the whole tensor or in a block of it.
    """

    name: str
    """The candidate's tensor."""
    shape: tuple[int, ...]
    """The shape of the candidate's tensor."""
    shape_of_reference: tuple[int, ...]
    order: tuple[int, ...] = ()
    """The reference's dimensions in the candidate's order; empty if they are as in the reference."""
    block: Block | None = None

    @staticmethod
    def whole(ours: TensorInfo, theirs: TensorInfo) -> Place:
        """The place in a tensor with as many elements in the same order."""
        return Place(theirs.name, theirs.shape or (), ours.shape or ())

    @property
    def plain(self) -> bool:
        """Whether the elements are those of the whole tensor in the same order."""
        return not self.order and self.block is None

    def put(self, value: torch.Tensor, into: torch.Tensor) -> None:
        """Write the reference's value into the candidate's tensor."""
        target = into if self.block is None else self.block.of(into)
        target.copy_((value.permute(self.order) if self.order else value).reshape(target.shape))

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """Read what belongs to the reference's tensor, in its shape."""
        if self.plain:
            return tensor.view(self.shape_of_reference)
        part = tensor if self.block is None else self.block.of(tensor.view(self.shape))
        if not self.order:
            return part.reshape(self.shape_of_reference)
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return part.reshape([self.shape_of_reference[axis] for axis in self.order]).permute(back).contiguous()


def parts(places: Mapping[str, Place]) -> dict[str, list[str]]:
    """The reference's tensors that each of the candidate's holds."""
    held: dict[str, list[str]] = {}
    for ours, place in places.items():
        held.setdefault(place.name, []).append(ours)
    return held


def order_of(value: torch.Tensor, target: torch.Tensor) -> tuple[int, ...] | None:
    """The order of `value`'s dimensions in which it has `target`'s elements, or None.

    Empty for its own order. Neither is a scalar.
    """
    if value.numel() != target.numel():
        return None
    long = [axis for axis, extent in enumerate(value.shape) if extent > 1]
    short = [axis for axis, extent in enumerate(value.shape) if extent <= 1]
    start = _start(target)
    for moved in itertools.permutations(long):
        ordered = value.permute((*short, *moved))
        first = _start(ordered)
        common = min(first.numel(), start.numel())
        if torch.equal(first[:common], start[:common]) and torch.equal(ordered.reshape(target.shape), target):
            return () if list(moved) == long else (*short, *moved)
    return None


def _start(tensor: torch.Tensor) -> torch.Tensor:
    """The first elements without a copy: all along the last dimension, at the start of the others."""
    return tensor[(0,) * (tensor.dim() - 1)]
