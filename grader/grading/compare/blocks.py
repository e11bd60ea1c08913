"""Passes over all elements of two tensors, piece by piece, in float64 where it matters: what a difference's sizes are.

A GPU is waited for once, at the end of a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

CHUNK_ELEMENTS = 1 << 22
"""Tensors are compared in pieces, so that float64 temporaries stay at some 200 MB."""
NARROW_RMS = (1e-9, 1e14)
"""Of tensors whose differences, some 1e-7 of that, can be squared and added in float32."""
SUM_ELEMENTS = {"cpu": 1 << 17, "cuda": 1 << 25}
"""So many squares are added in float32 for five digits: a GPU adds them as a tree."""


class Figures(NamedTuple):
    """Of one piece of an error and of what is exact, over elements that are finite in both."""

    squares: float
    reference_squares: float
    worst: float
    at: float
    """Where the worst is, in the whole tensor."""
    of_bound: float
    """The largest share of an element's bound, floor + slope |g|."""
    of_size: float
    """The largest error relative to 1 + |g|."""
    same_specials: float
    """1 where NaN and infinities stand in the same places."""


def figures(candidate: torch.Tensor, reference64: torch.Tensor, floor: float, slope: float) -> list[Figures]:
    """Of each piece. Specials are looked for only where there are any: without, it takes a third of the time."""
    found = _figures(candidate, reference64, floor, slope, finite=True)
    if all(math.isfinite(figure) for piece in found for figure in piece):
        return found
    return _figures(candidate, reference64, floor, slope, finite=False)


def distance(candidate: torch.Tensor, reference: torch.Tensor) -> tuple[float, float] | None:
    """Euclidean norms of the difference and of the reference, over elements finite in both; None for other specials.

    What `numerics.difference` says of the two, to five digits and in a fraction of its time: timed calls are compared
    by it alone.
    """
    if reference.dtype is torch.float32:
        length = SUM_ELEMENTS[candidate.device.type]
        pieces = (torch.split(whole.reshape(-1), length) for whole in (candidate, reference))
        found = _norms((c - g, g) for c, g in zip(*pieces, strict=True))
        least, most = (rms * math.sqrt(reference.numel()) for rms in NARROW_RMS)
        if least < found[1] < most and math.isfinite(found[0]):
            return found
    found = _norms((c - g, g) for c, g in _chunks(candidate, reference))
    if not all(map(math.isfinite, found)):
        if not all(bool(_same_specials(c, g)) for c, g in _chunks(candidate, reference)):
            return None
        found = _norms(((c - g)[torch.isfinite(g)], g[torch.isfinite(g)]) for c, g in _chunks(candidate, reference))
    return found


def baseline_error(run: torch.Tensor, reference64: torch.Tensor) -> tuple[float, float]:
    """||E_e|| and max|E_e| of an eager float32 run."""
    errors = ((c - g).abs().nan_to_num_(0.0, 0.0, 0.0) for c, g in _chunks(run, reference64))
    rows = [torch.stack((_square(error), error.max())) for error in errors]
    found = torch.stack(rows).tolist() if rows else [(0.0, 0.0)]
    return math.sqrt(sum(square for square, _ in found)), max(most for _, most in found)


def reals(value: torch.Tensor) -> torch.Tensor:
    """In float64; a complex number as two."""
    return (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).double()


def norm(tensor: torch.Tensor) -> float:
    """Euclidean norm over finite elements, in float64."""
    sizes = (piece.abs().nan_to_num_(0.0, 0.0, 0.0) for piece in _pieces(tensor, tensor.device))
    rows = [_square(size) for size in sizes]
    return math.sqrt(float(torch.stack(rows).sum())) if rows else 0.0


def _figures(
    candidate: torch.Tensor, reference64: torch.Tensor, floor: float, slope: float, *, finite: bool
) -> list[Figures]:
    """With `finite` all elements are taken to be; where one is not, nor are all figures."""
    rows: list[torch.Tensor] = []
    for c, g in _chunks(candidate, reference64):
        error, size = (c - g).abs(), g.abs()
        if not finite:
            special = ~(torch.isfinite(g) & torch.isfinite(c))
            error, size = error.masked_fill_(special, 0.0), size.masked_fill_(special, 0.0)
        top = error.argmax()
        found = [_square(error), _square(size), error.take(top), top + CHUNK_ELEMENTS * len(rows)]
        share = error / (slope * size).add_(floor)
        found.append((share if finite else share.nan_to_num_(0.0, math.inf)).max())  # 0 where nothing is and is due
        found.append(error.div_(size.add_(1)).max())
        found.append(torch.ones_like(top) if finite else _same_specials(c, g))
        rows.append(torch.stack([figure.double() for figure in found]))
    return [Figures(*row) for row in torch.stack(rows).tolist()] if rows else []


def _square(values: torch.Tensor) -> torch.Tensor:
    """Sum of squares; `dot` would load cuBLAS, which takes seconds."""
    length: torch.Tensor = torch.linalg.vector_norm(values)
    return length.square()


def _norms(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    squares = [_square(value) for pair in pairs for value in pair]
    one, other = torch.stack(squares).view(-1, 2).sum(0).sqrt().tolist() if squares else (0.0, 0.0)
    return one, other


def _chunks(candidate: torch.Tensor, reference64: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pieces of both, widened, on the candidate's device."""
    return zip(_pieces(candidate, candidate.device), _pieces(reference64, candidate.device), strict=True)


def _pieces(tensor: torch.Tensor, device: torch.device) -> Iterator[torch.Tensor]:
    """CHUNK_ELEMENTS each, widened."""
    wide = torch.complex128 if tensor.dtype.is_complex else torch.float64
    pieces: Iterable[torch.Tensor] = torch.split(tensor.reshape(-1), CHUNK_ELEMENTS) if tensor.numel() else ()
    return (piece.to(device).to(wide) for piece in pieces)


def _same_specials(c: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """One boolean: NaN and infinities stand in the same places."""
    return ((torch.isfinite(c) & torch.isfinite(g)) | (c == g) | (torch.isnan(c) & torch.isnan(g))).all()
