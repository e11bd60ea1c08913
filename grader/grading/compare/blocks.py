"""Norms and maxima of the difference between two tensors, block by block in float64.

Small tensors are compared together. Each pass synchronizes with the GPU once, at its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from grader.grading.compare.together import CHUNK_ELEMENTS, HOST_ELEMENTS, Pack, by_pack

NARROW_RMS = (1e-9, 1e14)
"""Root mean squares between which squares can be summed in float32. The differences are about 1e-7 of these values,
and their squares must not underflow (1e-38) or overflow (3e38)."""
SUM_ELEMENTS = {True: 1 << 17, False: 1 << 25}
"""Squares summed in float32 at a time on the CPU and elsewhere, for a result of five digits. A GPU sums in a tree, so
it may sum more."""


class BlockErrors(NamedTuple):
    """Error statistics of one block, over the elements that are finite in both tensors."""

    squares: float
    """Sum of squared errors."""
    reference_squares: float
    """Sum of squared reference values."""
    worst: float
    """The largest absolute error."""
    worst_at: float
    """Row-major position of the largest error in the whole tensor."""
    worst_candidate: float
    """The candidate's element there; the magnitude of a complex one."""
    worst_reference: float
    bound_ratio: float
    """The largest error relative to its element's bound, floor + slope |g|."""
    mixed_relative: float
    """The largest error relative to 1 + |g|."""
    same_specials: float
    """1 if NaN and infinities stand in the same places, else 0."""


class Compared(NamedTuple):
    """A candidate, its reference, and the bound on the error of each element: floor + slope |g|."""

    candidate: torch.Tensor
    reference64: torch.Tensor
    floor: float
    slope: float


def errors_each(questions: Sequence[Compared]) -> list[list[BlockErrors]]:
    """The error statistics of each, by block; those of small tensors, which are one block, in one pass."""

    def packed(positions: list[int]) -> list[list[BlockErrors]]:
        return [[row] for row in _pack_errors([questions[position] for position in positions])]

    candidates = [question.candidate for question in questions]
    return by_pack(candidates, lambda position: block_errors(questions[position]), packed)


def block_errors(question: Compared) -> list[BlockErrors]:
    """The error statistics of each block.

    The first pass assumes that all elements are finite, which takes a third of the time. A second pass follows only if
    a statistic of the first is not finite.
    """
    blocks = _block_errors(*question, finite=True)
    if all(math.isfinite(statistic) for block in blocks for statistic in block):
        return blocks
    return _block_errors(*question, finite=False)


def distance(candidate: torch.Tensor, reference: torch.Tensor) -> tuple[float, float] | None:
    """Euclidean norms (of candidate - reference, of reference), over the elements finite in both.

    None if NaN and infinities stand in other places. The norms agree with those of `tolerance.difference` to five
    digits and take a fraction of its time. The outputs of timed calls are compared by this function alone.
    """
    if reference.dtype is torch.float32:
        length = SUM_ELEMENTS[candidate.device.type == "cpu"]
        parts = (torch.split(whole.reshape(-1), length) for whole in (candidate, reference))
        norms = _norms((c - g, g) for c, g in zip(*parts, strict=True))
        least, most = (rms * math.sqrt(reference.numel()) for rms in NARROW_RMS)
        if least < norms[1] < most and math.isfinite(norms[0]):
            return norms
    norms = _norms((c - g, g) for c, g in _chunks(candidate, reference))
    if not all(map(math.isfinite, norms)):
        if not all(bool(_same_specials(c, g)) for c, g in _chunks(candidate, reference)):
            return None
        norms = _norms(((c - g)[torch.isfinite(g)], g[torch.isfinite(g)]) for c, g in _chunks(candidate, reference))
    return norms


def distances(
    candidates: Sequence[torch.Tensor], references: Sequence[torch.Tensor]
) -> list[tuple[float, float] | None]:
    """The `distance` of each; of small tensors in one pass."""

    def packed(positions: list[int]) -> list[tuple[float, float] | None]:
        c, g = (Pack([of[position] for position in positions]) for of in (candidates, references))
        size, gap = g.flat.double(), c.flat.double() - g.flat
        figures = [*c.norms(gap).tolist()], [*c.norms(size).tolist()]
        found = list[tuple[float, float] | None](zip(*figures, strict=True))
        finite = (one is not None and all(map(math.isfinite, one)) for one in found)
        return [
            one if fine else distance(candidates[position], references[position])
            for one, fine, position in zip(found, finite, positions, strict=True)
        ]

    return by_pack(candidates, lambda position: distance(candidates[position], references[position]), packed)


def baseline_error(run: torch.Tensor, reference64: torch.Tensor) -> tuple[float, float]:
    """(||E_e||, max |E_e|): the errors of an eager float32 run against the float64 reference."""
    errors = ((c - g).abs().nan_to_num_(0.0, 0.0, 0.0) for c, g in _chunks(run, reference64))
    rows = [torch.stack((_square(error), error.max())) for error in errors]
    blocks = torch.stack(rows).tolist() if rows else [(0.0, 0.0)]
    return math.sqrt(sum(square for square, _ in blocks)), max(largest for _, largest in blocks)


def baseline_errors(runs: Sequence[torch.Tensor], references: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """The `baseline_error` of each run; of small tensors in one pass."""

    def packed(positions: list[int]) -> Iterable[tuple[float, float]]:
        run, exact = (
            Pack([of[position] for position in positions], runs[positions[0]].device) for of in (runs, references)
        )
        error = (run.flat - exact.flat.to(run.device)).double().abs().nan_to_num_(0.0, 0.0, 0.0)
        return zip(run.norms(error).tolist(), run.largest(error).tolist(), strict=True)

    return by_pack(runs, lambda position: baseline_error(runs[position], references[position]), packed)


def are_finite(tensors: Sequence[torch.Tensor]) -> list[bool]:
    """Whether all elements of each are; of small tensors in one pass."""

    def packed(positions: list[int]) -> list[bool]:
        pack = Pack([tensors[position] for position in positions])
        return pack.largest(pack.flat.double()).isfinite().tolist()

    return by_pack(tensors, lambda position: bool(tensors[position].isfinite().all()), packed)


def reals(value: torch.Tensor) -> torch.Tensor:
    """The values in float64; a complex tensor gets a last dimension of 2 for real and imaginary parts."""
    return (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).double()


def within_range(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The exact values with infinity where they exceed the range of `dtype`."""
    return torch.where(exact.abs() > torch.finfo(dtype).max, exact.sign() * math.inf, exact)


def norm(tensor: torch.Tensor) -> float:
    """The Euclidean norm over finite elements, in float64."""
    sizes = (block.abs().nan_to_num_(0.0, 0.0, 0.0) for block in _blocks(tensor, tensor.device))
    rows = [_square(size) for size in sizes]
    return math.sqrt(float(torch.stack(rows).sum())) if rows else 0.0


def norms_each(tensors: Sequence[torch.Tensor]) -> list[float]:
    """The `norm` of each; of small tensors in one pass."""

    def packed(positions: list[int]) -> list[float]:
        pack = Pack([tensors[position] for position in positions])
        return pack.norms(pack.flat.abs().double().nan_to_num_(0.0, 0.0, 0.0)).tolist()

    return by_pack(tensors, lambda position: norm(tensors[position]), packed)


def _block_errors(
    candidate: torch.Tensor, reference64: torch.Tensor, floor: float, slope: float, *, finite: bool
) -> list[BlockErrors]:
    """`finite` assumes that all elements are finite; if one is not, a statistic of its block is not finite either."""
    rows: list[torch.Tensor] = []
    for c, g in _chunks(candidate, reference64):
        error, size = (c - g).abs(), g.abs()
        if not finite:
            special = ~(torch.isfinite(g) & torch.isfinite(c))
            error, size = error.masked_fill_(special, 0.0), size.masked_fill_(special, 0.0)
        top = error.argmax()
        statistics = [_square(error), _square(size), error.take(top), top + CHUNK_ELEMENTS * len(rows)]
        statistics += [element.abs() if element.is_complex() else element for element in (c.take(top), g.take(top))]
        ratio = error / (slope * size).add_(floor)
        # 0/0 is NaN and counts as 0: the element is exact and its bound is 0.
        statistics.append((ratio if finite else ratio.nan_to_num_(0.0, math.inf)).max())
        statistics.append(error.div_(size.add_(1)).max())
        statistics.append(torch.ones_like(top) if finite else _same_specials(c, g))
        rows.append(torch.stack([statistic.double() for statistic in statistics]))
    return [BlockErrors(*row) for row in torch.stack(rows).tolist()] if rows else []


def _pack_errors(questions: Sequence[Compared]) -> list[BlockErrors]:
    """The statistics of `block_errors` for each of several tensors of one block."""
    device = questions[0].candidate.device
    if sum(question.candidate.numel() for question in questions) <= HOST_ELEMENTS:
        device = torch.device("cpu")
    pack = Pack([question.candidate for question in questions], device)
    c, g = pack.flat.double(), Pack([question.reference64 for question in questions], device).flat.double()
    floor, slope = (pack.row([getattr(question, name) for question in questions]) for name in ("floor", "slope"))
    special = ~(torch.isfinite(g) & torch.isfinite(c))
    error, size = ((c - g).abs().masked_fill_(special, 0.0), g.abs().masked_fill_(special, 0.0))
    worst = pack.largest(error)
    at = pack.first((error == pack.spread(worst)) & (error > 0))
    ratio = (error / (pack.spread(slope) * size + pack.spread(floor))).nan_to_num_(0.0, math.inf)
    unlike = ~((c == g) | ~special | (torch.isnan(c) & torch.isnan(g)))
    starts = pack.row(pack.counts).cumsum(0) - pack.row(pack.counts)
    rows = [pack.norms(error).square(), pack.norms(size).square(), worst, at - starts]
    rows += [value[at.clamp_min(0)] for value in (c, g)]
    rows += [pack.largest(ratio), pack.largest(error / (size + 1)), 1 - pack.largest(unlike.double())]
    return [BlockErrors(*row) for row in torch.stack(rows).T.tolist()]


def _square(values: torch.Tensor) -> torch.Tensor:
    """The sum of squares. `torch.dot` would load cuBLAS, which takes seconds."""
    length: torch.Tensor = torch.linalg.vector_norm(values)
    return length.square()


def _norms(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """The Euclidean norms of two tensors that come as pairs of blocks."""
    squares = [_square(value) for pair in pairs for value in pair]
    one, other = torch.stack(squares).view(-1, 2).sum(0).sqrt().tolist() if squares else (0.0, 0.0)
    return one, other


def _chunks(candidate: torch.Tensor, reference64: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of blocks in float64 or complex128, on the candidate's device."""
    return zip(_blocks(candidate, candidate.device), _blocks(reference64, candidate.device), strict=True)


def _blocks(tensor: torch.Tensor, device: torch.device) -> Iterator[torch.Tensor]:
    """Blocks of CHUNK_ELEMENTS elements, in float64 or complex128."""
    wide = torch.complex128 if tensor.dtype.is_complex else torch.float64
    blocks: Iterable[torch.Tensor] = torch.split(tensor.reshape(-1), CHUNK_ELEMENTS) if tensor.numel() else ()
    return (block.to(device).to(wide) for block in blocks)


def _same_specials(c: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """One boolean tensor: whether NaN and infinities stand in the same places."""
    return ((torch.isfinite(c) & torch.isfinite(g)) | (c == g) | (torch.isnan(c) & torch.isnan(g))).all()


def unravel(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of the element at a row-major position.

    `torch.unravel_index` does the same and imports sympy first, which takes seconds.
    """
    index = []
    for extent in reversed(shape):
        position, inner = divmod(position, extent)
        index.append(inner)
    return tuple(reversed(index))


LARGE_BYTES = 64 << 20
"""Bytes from which a tensor is large: it is compared on its own, one job holds few like it, and its float64 values are
kept in float32. A case at full size would otherwise take several gigabytes."""
HUGE_BYTES = 4 << 30
"""Bytes of a case from which one timed call fills a sample, since reading them takes a millisecond at an H200's
4.8 TB/s, and from which both sides take turns in the device's memory."""
CHECK_BYTES = 256 << 20
"""Bytes of inputs that a check of adjustable size may use, on a CPU or a GPU. A choice: small beside a GPU's memory."""


def is_large(value: object) -> bool:
    """Whether the value is a tensor of LARGE_BYTES or more."""
    return isinstance(value, torch.Tensor) and value.numel() * value.element_size() >= LARGE_BYTES


def relative(error: float, size: float) -> float:
    """The error relative to a size; 0 without an error, infinite relative to 0."""
    if error == 0.0:
        return 0.0
    return error / size if size else math.inf


def index(position: tuple[int, ...] | None) -> str:
    """`[0, 3]`."""
    return "[" + ", ".join(str(i) for i in position or ()) + "]"


def number(value: float | None) -> str:
    """Six digits; `nothing` for None."""
    return "nothing" if value is None else f"{value:.6g}"
