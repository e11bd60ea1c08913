"""Matches the candidate's parameters and buffers with the reference's: by name, by value, by order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from grader.grading.candidate.placement import (
    Block,
    EqualValues,
    Placement,
    constant,
    kept_in_parts,
    match_values,
    parts,
    plain_name,
)
from grader.protocol import TensorInfo


@dataclass(frozen=True)
class Matching:
    """The pairs that were found, and the tensors of either side that have no counterpart."""

    places: Mapping[str, Placement]
    """The place of each of the reference's tensors in the candidate."""
    missing: tuple[str, ...] = ()
    """Reference tensors that the candidate does not have."""
    extra: tuple[str, ...] = ()
    """Candidate tensors without a counterpart in the reference. They keep the values from their constructor."""
    guessed: tuple[str, ...] = ()
    """Reference tensors that were paired by order, although another pairing is possible."""
    in_parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of `missing` that the candidate keeps in several tensors, with these."""

    @staticmethod
    def of_itself(state: Mapping[str, torch.Tensor]) -> Matching:
        """The reference's tensors where the reference keeps them."""
        return Matching(
            {name: Placement(name, tuple(tensor.shape), tuple(tensor.shape)) for name, tensor in state.items()}
        )

    @property
    def unsure(self) -> bool:
        """Whether values may show pairs that names do not."""
        return bool(self.guessed) or bool(self.missing and self.extra)

    def without(self, names: Collection[str]) -> Matching:
        """The same if the candidate did not have these of the reference's tensors."""
        left = {name: place for name, place in self.places.items() if name not in names}
        gone = tuple(name for name in self.places if name not in left)
        extra = tuple(self.places[name].name for name in gone)
        return replace(self, places=left, missing=self.missing + gone, extra=self.extra + extra)

    def values(self, state: Mapping[str, torch.Tensor], only: Collection[str] | None = None) -> dict[str, torch.Tensor]:
        """The candidate's tensors that hold these values, or those of them that hold any of `only`."""
        held: dict[str, torch.Tensor] = {}
        for name, ours in parts(self.places).items():
            if not all(one in state for one in ours) or (only is not None and not set(ours) & set(only)):
                continue
            first, place = state[ours[0]], self.places[ours[0]]
            if place.plain:
                held[name] = first
                continue
            held[name] = torch.empty(place.shape, dtype=first.dtype, device=first.device)
            for one in ours:
                self.places[one].put(state[one], held[name])
        return held


def match(
    reference: Sequence[TensorInfo],
    candidate: Sequence[TensorInfo],
    values: Sequence[EqualValues] = (),
    *,
    doubted: bool = False,
) -> Matching:
    """Apply each rule to the tensors that the rules before it left unmatched.

    Names come first, or `values` if names are `doubted`; order comes last. Dimensions of extent 1 are ignored where no
    tensor has the very shape: a multiplier of shape (C, 1, 1) may be stored as (C,).
    """
    places: dict[str, Placement] = {}

    def unmatched() -> tuple[list[TensorInfo], list[TensorInfo]]:
        taken = {place.name for place in places.values()}
        return (
            [info for info in reference if info.name not in places],
            [info for info in candidate if info.name not in taken],
        )

    def apply(rules: Sequence[Rule]) -> None:
        for rule in rules:
            places.update({ours.name: Placement.whole(ours, theirs) for ours, theirs in rule(*unmatched())})

    def compare_values() -> None:
        for one in values:
            ours, theirs = unmatched()
            places.update(match_values(one.only([info.name for info in ours], [info.name for info in theirs])))

    if doubted:
        compare_values()
    apply(EXACT)
    compare_values()
    places.update(_joined_beside(places, *unmatched()))
    apply([_beside(places), *UNIQUE])
    alike = _constants_of(reference, candidate, values[-1]) if values else _shape
    apply([_alone(alike)])
    sure = set(places)
    apply([_in_order(alike), _in_order(_shape), _in_order(_squeezed)])
    missing, extra = (tuple(info.name for info in infos) for infos in unmatched())
    return Matching(
        places=places,
        missing=missing,
        extra=extra,
        guessed=tuple(name for name in places if name not in sure),
        in_parts=next(filter(None, (kept_in_parts(one.only(missing, extra)) for one in values)), {}),
    )


Infos = Sequence[TensorInfo]
Pairs = Iterator[tuple[TensorInfo, TensorInfo]]
Rule = Callable[[Infos, Infos], Pairs]
Trait = Callable[[TensorInfo], Hashable]


def _alone(*traits: Trait) -> Rule:
    """Match tensors that share all traits, if each side has exactly one of them."""

    def rule(ours: Infos, theirs: Infos) -> Pairs:
        for one, other in _groups(ours, theirs, lambda info: tuple(trait(info) for trait in traits)):
            if len(one) == len(other) == 1:
                yield one[0], other[0]

    return rule


def _in_order(trait: Trait) -> Rule:
    """Match tensors that share the trait in their order, if both sides have equally many."""

    def rule(ours: Infos, theirs: Infos) -> Pairs:
        for one, other in _groups(ours, theirs, trait):
            if len(one) == len(other):
                yield from zip(one, other, strict=True)

    return rule


def _named_where_no_shape_fits(ours: Infos, theirs: Infos) -> Pairs:
    """Match by name and squeezed shape, unless an unmatched candidate tensor has the very shape."""
    shapes = {_shape(info) for info in theirs}
    yield from _alone(_name, _squeezed)([info for info in ours if _shape(info) not in shapes], theirs)


def _beside(places: Mapping[str, Placement]) -> Rule:
    """Match `fc.bias` with `linear.bias` if `fc.weight` is `linear.weight`."""

    def rule(ours: Infos, theirs: Infos) -> Pairs:
        modules = {_module(name): _module(place.name) for name, place in places.items() if place.plain}
        free = {(_module(info.name), _last_name(info), _squeezed(info)): info for info in theirs}
        for info in ours:
            other = free.pop((modules.get(_module(info.name), ""), _last_name(info), _squeezed(info)), None)
            if other is not None:
                yield info, other

    return rule


def _joined_beside(places: Mapping[str, Placement], ours: Infos, theirs: Infos) -> dict[str, Placement]:
    """The places of `q.bias`, `k.bias` and `v.bias` in one free tensor, if their weights are joined in that order.

    Constant biases have no values that would tell.
    """
    found: dict[str, Placement] = {}
    left = {info.name: info for info in ours}
    for joined in parts({name: place for name, place in places.items() if place.block is not None}).values():
        for last in dict.fromkeys(_last_name(info) for info in ours if _module(info.name) == _module(joined[0])):
            infos = [left.get(f"{_module(name)}.{last}") for name in joined]
            shapes = {_shape(info) for info in infos if info is not None}
            if None in infos or len(shapes) != 1:
                continue
            (shape,), count = shapes, len(infos)
            side_by_side = (count * shape[0], *shape[1:]) if shape else (count,)
            other = next((one for one in theirs if _shape(one) in (side_by_side, (count, *shape))), None)
            if other is not None and other.name not in {place.name for place in found.values()}:
                length = _shape(other)[0] // count
                for turn, info in enumerate(infos):
                    assert info is not None
                    found[info.name] = Placement(
                        other.name, _shape(other), shape, block=Block(0, turn * length, length)
                    )
    return found


def _groups(ours: Infos, theirs: Infos, trait: Trait) -> Iterator[tuple[list[TensorInfo], list[TensorInfo]]]:
    """The tensors of both sides for each value of the trait."""
    groups: dict[Hashable, tuple[list[TensorInfo], list[TensorInfo]]] = {}
    for side, infos in enumerate((ours, theirs)):
        for info in infos:
            groups.setdefault(trait(info), ([], []))[side].append(info)
    return iter(groups.values())


def _name(info: TensorInfo) -> str:
    return plain_name(info.name)


def _last_name(info: TensorInfo) -> str:
    return info.name.rpartition(".")[2]


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _shape(info: TensorInfo) -> tuple[int, ...]:
    return info.shape or ()


def _squeezed(info: TensorInfo) -> tuple[int, ...]:
    return tuple(extent for extent in info.shape or () if extent != 1)


def _constants_of(reference: Infos, candidate: Infos, values: EqualValues) -> Trait:
    """The trait of shape and, for a tensor that is constant as constructed, its element."""
    starts = {id(info): _constant_of(values.ours.get(info.name)) for info in reference}
    starts |= {id(info): _constant_of(values.theirs.get(info.name)) for info in candidate}
    return lambda info: (_shape(info), starts[id(info)])


def _constant_of(value: torch.Tensor | None) -> float | None:
    """The element that a constant tensor consists of as constructed; None for others."""
    if value is None or not value.numel() or value.is_complex() or not constant(value):
        return None
    return float(value.reshape(-1)[0])


EXACT: Sequence[Rule] = (_alone(lambda info: info.name, _shape), _alone(_name, _shape))
UNIQUE: Sequence[Rule] = (
    _named_where_no_shape_fits,
    _alone(_last_name, _shape),
    _alone(_name, _squeezed),
    _alone(_last_name, _squeezed),
    _alone(_shape),
    _alone(_squeezed),
)
"""Names come before order because a submission may nest its modules differently."""
