"""Measures how much a tensor changed, and recognises a multiple of the right one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from grader.grading.compare import blocks, narrow_types
from grader.grading.compare.together import Pack

ROUNDING_RESIDUAL = 1e-4
"""Relative difference below which two results agree up to rounding: ten times the error of float32 reductions. Applies
to ||c - a g|| / ||c||, to a factor and the nearest whole number, and to a norm that should be 0."""
REDUCED_PRECISION = 1e-3
"""Relative error that reduced precision or another order of float32 sums may cause. A smaller change between two equal
calls is rounding."""

UNKNOWN_CONSTANT = "look for a constant that does not belong there, or is missing"
"""The remedy for a factor that is neither a whole number nor the inverse of one."""


def change(before: torch.Tensor, after: torch.Tensor) -> float:
    """The norm of the difference, relative to the norm before.

    NaN, for which no comparison holds, if either has one.
    """
    return changes([before], [after])[0]


def changes(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> list[float]:
    """The `change` of each tensor; small ones are compared together."""

    def statistics(_: list[int], old: Pack, new: Pack, *, finite: bool) -> list[torch.Tensor]:
        a, b = blocks.comparable(old.flat, new.flat) if finite else (blocks.wide(old.flat), blocks.wide(new.flat))
        return [old.norms(b - a), old.norms(a)]

    return [
        math.hypot(*(distance for distance, _ in rows)) / max(math.hypot(*(length for _, length in rows)), 1e-300)
        for rows in blocks.rows_each([before, after], statistics)
    ]


def slope(tensor: torch.Tensor, basis: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """The least-squares factor of each group along `dims`; 0 for a basis of zeros."""
    size = (basis * basis).sum(tuple(dims), keepdim=True)
    return (tensor * basis).sum(tuple(dims), keepdim=True) / size.where(size > 0, 1.0)


def least_squares(tensor: torch.Tensor, basis: torch.Tensor) -> float:
    """The least-squares a in tensor = a * basis."""
    return float(slope(tensor, basis, range(basis.ndim)))


def _exact(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Flat blocks of both in float64 on the device of the first."""
    for ours, theirs in blocks.in_blocks(one, other):
        yield blocks.reals(ours).reshape(-1), blocks.reals(theirs).to(one.device).reshape(-1)


def scale_of(gradient: torch.Tensor, reference64: torch.Tensor) -> float | None:
    """The factor a in gradient = a * reference64, up to a small residual; None if there is none or a = 1.

    A factor close to 1 counts if the residual is so small that rounding does not explain it. In 16 bits, the residual
    is that of rounding, which has no direction, and the factor is off by more than one rounding. Any two single numbers
    are multiples of each other, and so are two tensors with a single number each, as behind a mean: for those the
    factor must be a whole number or the inverse of one, up to float32's rounding of a sum.
    """
    products, least, most = list[torch.Tensor](), math.inf, -math.inf
    for c, g in _exact(gradient, reference64):
        products.append(torch.stack([c @ c, c @ g, g @ g]))
        if len(g):
            least, most = min(least, float(g.where(g != 0, least).min())), max(most, float(g.where(g != 0, most).max()))
    if not products:
        return None
    length, along, size = torch.stack(products).sum(0).tolist()
    narrow = narrow_types.spacing(gradient.dtype)
    if size == 0.0:
        return None
    factor = along / size
    rest = [torch.linalg.vector_norm(c - factor * g) for c, g in _exact(gradient, reference64)]
    residual = float(torch.linalg.vector_norm(torch.stack(rest))) / max(math.sqrt(length), 1e-300)
    off = abs(factor - 1)
    if narrow:
        is_one, left = off <= narrow / 2, narrow_types.two_roundings(gradient.dtype)
    else:
        is_one, left = False, min(ROUNDING_RESIDUAL, off / 10)
    if not factor or is_one or not residual < left:
        return None
    plain = {_whole(factor, 1e-5), _whole(1 / factor, 1e-5)} - {None, 1}
    several = most - least > ROUNDING_RESIDUAL * max(abs(most), abs(least))
    if not several and not plain:
        return None
    return _settled(factor, narrow) if narrow else factor


def _settled(factor: float, spacing: float) -> float:
    """The factor without the digits that rounding to numbers of this spacing leaves open."""
    whole, part = _whole(factor, spacing / 8), _whole(1 / factor, spacing / 8)
    if whole is not None:
        return whole
    return 1 / part if part is not None else float(f"{factor:.{1 - math.floor(math.log10(spacing))}g}")


def factor_text(factor: float) -> str:
    """`2`, `-1`, `1/64`, `0`, or the number with five digits, or with as many as tell it from 1."""
    if 0 < abs(factor - 1) < ROUNDING_RESIDUAL:
        return f"1 {'+' if factor > 1 else '-'} {abs(factor - 1):.2g}"
    whole, part = _whole(factor), _whole(1 / factor) if factor else None
    if whole is not None:
        return f"{whole}"
    if part is not None:
        return f"{'-' if part < 0 else ''}1/{abs(part)}"
    return f"{factor:.5g}"


def scale_remedy(factor: float) -> str:
    """The change that removes the factor."""
    shown = factor_text(factor)
    if shown == "-1":
        return "flip its sign"
    if abs(factor) < 1 and "/" in shown:
        divisor = shown.rpartition("/")[2]
        if len(divisor) == 1:
            return f"do not divide by {divisor}, or look for a factor {divisor} that is left out"
        return f"do not divide by {divisor}; sum over the batch instead of averaging, if it is a mean"
    if shown.lstrip("-").isdigit():
        return f"remove the factor {shown}, or look for a term that is added more than once"
    return UNKNOWN_CONSTANT


def _whole(number: float, residual: float = ROUNDING_RESIDUAL) -> int | None:
    """The whole number that this one is, up to rounding; None for 0 and for what is too large to decide."""
    nearest = round(number) if math.isfinite(number) else 0
    return nearest if nearest and abs(number - nearest) < residual * min(abs(number), 10.0) else None
