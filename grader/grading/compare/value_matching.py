"""Finds a reference's tensors among the candidate's by value: as they are, reordered or joined."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import NamedTuple

import torch

from grader.grading.compare.placement import Block, Place, order_of

Tensors = Mapping[str, torch.Tensor]


class Values(NamedTuple):
    """Parameters and buffers of both sides by name, where corresponding ones have equal values."""

    ours: Tensors
    theirs: Tensors

    def only(self, ours: Collection[str], theirs: Collection[str]) -> Values:
        """Those of these names."""
        return Values(
            {name: self.ours[name] for name in ours if name in self.ours},
            {name: self.theirs[name] for name in theirs if name in self.theirs},
        )


def match_values(values: Values) -> dict[str, Place]:
    """The places of the reference's tensors that can be recognised by their values.

    A constant tensor is recognised only as a part of a joined one. Among equal tensors, a name that agrees decides,
    then the order.
    """
    places: dict[str, Place] = {}
    free: dict[Hashable, list[str]] = {}
    for name, tensor in values.theirs.items():
        if not constant(tensor):
            free.setdefault(_traits(tensor), []).append(name)
    for name, value in values.ours.items():
        alike = [] if constant(value) else free.get(_traits(value), [])
        for other in sorted(alike, key=lambda other: plain_name(other) != plain_name(name)):
            target = values.theirs[other]
            order = order_of(value, target)
            if order is not None:
                places[name] = Place(other, tuple(target.shape), tuple(value.shape), order)
                alike.remove(other)
                break
    for other in [name for names in free.values() for name in names]:
        left = {name: value for name, value in values.ours.items() if name not in places}
        places.update(_joined(other, values.theirs[other], left))
    return places


def constant(tensor: torch.Tensor) -> bool:
    """Whether all elements are equal, or there is none: its values say nothing about its place."""
    return tensor.numel() < 2 or bool((tensor == tensor.reshape(-1)[0]).all())


def plain_name(name: str) -> str:
    """The qualified name with underscores, so that `bn_weight` matches `bn.weight`."""
    return name.replace(".", "_")


def _joined(name: str, tensor: torch.Tensor, left: Tensors) -> dict[str, Place]:
    """The places of the tensors that `tensor` consists of, side by side or stacked; empty if it does not."""
    for axis, extent in enumerate(tensor.shape):
        places: dict[str, Place] = {}
        start = 0
        while start < extent:
            found = _part_at(tensor, axis, start, {one: of for one, of in left.items() if one not in places})
            if found is None:
                break
            ours, order, block = found
            places[ours] = Place(name, tuple(tensor.shape), tuple(left[ours].shape), order, block)
            start += block.length
        else:
            return places
    return {}


def _part_at(tensor: torch.Tensor, axis: int, start: int, left: Tensors) -> tuple[str, tuple[int, ...], Block] | None:
    """The tensor that begins at a position of a dimension: its name, the order of its dimensions, its block."""
    extent, traits = tensor.shape[axis], {}
    for name, value in left.items():
        length, rest = divmod(value.numel() * extent, tensor.numel())
        if rest or not 0 < length <= extent - start or not value.dim():
            continue
        block = Block(axis, start, length)
        if length not in traits:
            traits[length] = _traits(block.of(tensor))
        order = order_of(value, block.of(tensor)) if _traits(value) == traits[length] else None
        if order is not None:
            return name, order, block
    return None


def _traits(tensor: torch.Tensor) -> Hashable:
    """Properties that reordering keeps: dtype, number of elements, extremes."""
    if not tensor.numel():
        return tensor.dtype, 0
    low, high = torch.aminmax(torch.view_as_real(tensor) if tensor.is_complex() else tensor)
    return tensor.dtype, tensor.numel(), float(low), float(high)
