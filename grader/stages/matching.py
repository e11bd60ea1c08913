"""Which of the candidate's parameters and buffers is which of the reference's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.protocol import TensorInfo


@dataclass(frozen=True)
class Matching:
    """By reference name. A reference tensor that the candidate does not have is in `missing`."""

    names: dict[str, str]
    """Reference name to candidate name."""
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    """Candidate parameters that stand for nothing in the reference: they keep what their constructor gave them."""


def match(reference: Sequence[TensorInfo], candidate: Sequence[TensorInfo]) -> Matching:
    """By name first; what is left, by shape and order, when both sides have the same number of that shape.

    Extents of 1 do not count, so that a multiplier of (C, 1, 1) may be kept as (C,).
    """
    by_name = {info.name: info for info in candidate}
    names = {
        info.name: info.name
        for info in reference
        if info.name in by_name and _squeezed(by_name[info.name]) == _squeezed(info)
    }
    left_reference = [info for info in reference if info.name not in names]
    taken = set(names.values())
    left_candidate = [info for info in candidate if info.name not in taken]
    for shape in dict.fromkeys(_squeezed(info) for info in left_reference):
        ours = [info.name for info in left_reference if _squeezed(info) == shape]
        theirs = [info.name for info in left_candidate if _squeezed(info) == shape]
        if len(ours) == len(theirs):
            names.update(zip(ours, theirs, strict=True))
    taken = set(names.values())
    return Matching(
        names=names,
        missing=tuple(info.name for info in reference if info.name not in names),
        extra=tuple(info.name for info in candidate if info.name not in taken),
    )


def _squeezed(info: TensorInfo) -> tuple[int, ...]:
    return tuple(extent for extent in info.shape or () if extent != 1)
