"""Matches the candidate's parameters and buffers with the reference's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from grader.protocol import TensorInfo


@dataclass(frozen=True)
class Matching:
    """The pairs that were found, and the tensors of either side that have no counterpart."""

    names: dict[str, str]
    """Reference name to candidate name."""
    missing: tuple[str, ...]
    """Reference tensors that the candidate does not have."""
    extra: tuple[str, ...]
    """Candidate tensors without a counterpart in the reference. They keep the values from their constructor."""


def match(reference: Sequence[TensorInfo], candidate: Sequence[TensorInfo]) -> Matching:
    """Apply each of RULES to the tensors that the rules before it left unmatched.

    Dimensions of extent 1 are ignored where no tensor has the very shape: a multiplier of shape (C, 1, 1) may be stored
    as (C,).
    """
    names: dict[str, str] = {}
    for rule in RULES:
        taken = set(names.values())
        left = [info for info in reference if info.name not in names]
        free = [info for info in candidate if info.name not in taken]
        names |= {ours.name: theirs.name for ours, theirs in rule(left, free)}
    taken = set(names.values())
    return Matching(
        names=names,
        missing=tuple(info.name for info in reference if info.name not in names),
        extra=tuple(info.name for info in candidate if info.name not in taken),
    )


Infos = Sequence[TensorInfo]
Pairs = Iterator[tuple[TensorInfo, TensorInfo]]
Trait = Callable[[TensorInfo], Hashable]


def _alone(*traits: Trait) -> Callable[[Infos, Infos], Pairs]:
    """Match tensors that share all traits, if each side has exactly one of them."""

    def rule(ours: Infos, theirs: Infos) -> Pairs:
        for one, other in _groups(ours, theirs, lambda info: tuple(trait(info) for trait in traits)):
            if len(one) == len(other) == 1:
                yield one[0], other[0]

    return rule


def _in_order(trait: Trait) -> Callable[[Infos, Infos], Pairs]:
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


def _groups(ours: Infos, theirs: Infos, trait: Trait) -> Iterator[tuple[list[TensorInfo], list[TensorInfo]]]:
    """The tensors of both sides for each value of the trait."""
    groups: dict[Hashable, tuple[list[TensorInfo], list[TensorInfo]]] = {}
    for side, infos in enumerate((ours, theirs)):
        for info in infos:
            groups.setdefault(trait(info), ([], []))[side].append(info)
    return iter(groups.values())


def _name(info: TensorInfo) -> str:
    """The qualified name with underscores, so that `bn_weight` matches `bn.weight`."""
    return info.name.replace(".", "_")


def _last_name(info: TensorInfo) -> str:
    return info.name.rpartition(".")[2]


def _shape(info: TensorInfo) -> tuple[int, ...]:
    return info.shape or ()


def _squeezed(info: TensorInfo) -> tuple[int, ...]:
    return tuple(extent for extent in info.shape or () if extent != 1)


RULES = (
    _alone(lambda info: info.name, _shape),
    _alone(_name, _shape),
    _named_where_no_shape_fits,
    _alone(_last_name, _shape),
    _alone(_name, _squeezed),
    _alone(_last_name, _squeezed),
    _in_order(_shape),
    _in_order(_squeezed),
)
"""The most reliable rule first. Names come before order because a submission may nest its modules differently."""
