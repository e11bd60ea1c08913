"""The place of a reference's tensor in a candidate: in which tensor, in which order, in which part.

It is found by value: values of both sides agree under equal seeds, and after load_state_dict.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, TensorSpec, WorkerClient
from grader.grading.oracle.case import Case
from grader.verdict.models import Device, StageName


class Block(NamedTuple):
    """A part of a tensor along one dimension."""

    axis: int
    start: int
    length: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of the part."""
        return tensor.narrow(self.axis, self.start, self.length)


@dataclass(frozen=True)
class Placement:
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
    def whole(ours: p.TensorInfo, theirs: p.TensorInfo) -> Placement:
        """The place in a tensor with as many elements in the same order."""
        return Placement(theirs.name, theirs.shape or (), ours.shape or ())

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


def parts(places: Mapping[str, Placement]) -> dict[str, list[str]]:
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


Tensors = Mapping[str, torch.Tensor]


class EqualValues(NamedTuple):
    """Parameters and buffers of both sides by name, where corresponding ones have equal values."""

    ours: Tensors
    theirs: Tensors

    def only(self, ours: Collection[str], theirs: Collection[str]) -> EqualValues:
        """The pairs with these names only."""
        return EqualValues(
            {name: self.ours[name] for name in ours if name in self.ours},
            {name: self.theirs[name] for name in theirs if name in self.theirs},
        )


def match_values(values: EqualValues) -> dict[str, Placement]:
    """The places of the reference's tensors that can be recognised by their values.

    A constant tensor is recognised only as a part of a joined one. Among equal tensors, a name that agrees decides,
    then the order.
    """
    places: dict[str, Placement] = {}
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
                places[name] = Placement(other, tuple(target.shape), tuple(value.shape), order)
                alike.remove(other)
                break
    for other in [name for names in free.values() for name in names]:
        left = {name: value for name, value in values.ours.items() if name not in places}
        places.update(_joined(other, values.theirs[other], left))
    return places


def kept_in_parts(values: EqualValues) -> dict[str, tuple[str, ...]]:
    """The reference's tensors that the candidate keeps in several, side by side, with the names of these."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in values.ours.items():
        taken = {other for others in found.values() for other in others}
        left = {other: tensor for other, tensor in values.theirs.items() if other not in taken}
        held = () if constant(value) else tuple(_joined(name, value, left))
        if len(held) > 1:
            found[name] = held
    return found


def constant(tensor: torch.Tensor) -> bool:
    """Whether all elements are equal, or there is none: its values say nothing about its place."""
    return tensor.numel() < 2 or bool((tensor == tensor.reshape(-1)[0]).all())


def plain_name(name: str) -> str:
    """The qualified name with underscores, so that `bn_weight` matches `bn.weight`."""
    return name.replace(".", "_")


def _joined(name: str, tensor: torch.Tensor, left: Tensors) -> dict[str, Placement]:
    """The places of the tensors that `tensor` consists of, side by side or stacked; empty if it does not."""
    for axis, extent in enumerate(tensor.shape):
        places: dict[str, Placement] = {}
        start = 0
        while start < extent:
            found = _part_at(tensor, axis, start, {one: part for one, part in left.items() if one not in places})
            if found is None:
                break
            ours, order, block = found
            places[ours] = Placement(name, tuple(tensor.shape), tuple(left[ours].shape), order, block)
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


Constructor = Callable[[Case, int, bool], Mapping[str, torch.Tensor]]
"""The reference's parameters and buffers in the case's sizes, constructed under a seed, on the device or on the CPU."""


class Runner(Protocol):
    """Anything that runs jobs in the candidate's worker."""

    worker: WorkerClient
    device: Device

    def attempt(self, job: JobBuilder, stage: StageName, doing: str) -> JobResult:
        """The job's result, or its failure."""
        ...


def values_alike(
    runner: Runner,
    key: str,
    tensors: Sequence[p.TensorInfo],
    seeded: Mapping[str, torch.Tensor],
    *,
    loads: bool,
) -> list[EqualValues]:
    """Values of both sides that should agree, the most reliable first.

    `seeded` are the reference's under the seed of the candidate's new model, whose worker has it under `key`. With
    `loads`, random values of the reference's are loaded into that model too: its hooks may map a state dict. Raises
    Stopped when the worker is lost.
    """
    specs = _specs(tensors, sum(value.nbytes for value in seeded.values()))

    def theirs(doing: str, loaded: Tensors | None = None) -> Tensors | None:
        job = JobBuilder(runner.worker, runner.device)
        if loaded is not None:
            job.load_state(key, loaded)
        job.export({p.state_source(key, name): spec for name, spec in specs.items()})
        result = runner.attempt(job, "load", doing)
        found = {name: result.sealed.get(p.state_source(key, name)) for name in specs}
        return None if result.failure else {name: value for name, value in found.items() if value is not None}

    values = [EqualValues(seeded, theirs("reading parameters as constructed") or {})]
    if loads:
        drawn = {name: _random(value) for name, value in seeded.items()}
        taken = theirs("loading a state dict of the reference", drawn)
        values = values if taken is None else [EqualValues(drawn, taken), *values]
    return values


def _specs(tensors: Sequence[p.TensorInfo], most: int) -> dict[str, TensorSpec]:
    """The tensors that can be compared: dense, together at most twice the reference's bytes."""
    specs, room = {}, 2 * most
    for info in tensors:
        if info.kind == "tensor" and isinstance(getattr(torch, info.dtype or "", None), torch.dtype):
            spec = TensorSpec.of(info)
            room -= spec.nbytes
            if room >= 0:
                specs[info.name] = spec
    return specs


def _random(value: torch.Tensor) -> torch.Tensor:
    """Other values of a float tensor, no two alike; other tensors as they are."""
    return torch.randn_like(value) if value.is_floating_point() or value.is_complex() else value
