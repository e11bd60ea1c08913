"""Norms and maxima of the difference between two tensors, block by block in float64.

Small tensors are compared together. Each pass synchronizes with the GPU once, at its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from grader.grading.compare.together import HOST_ELEMENTS, Pack, by_pack, chunk

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


def errors_each(questions: Sequence[Compared], *, finite: bool = True) -> list[list[BlockErrors]]:
    """The error statistics of each, by block; those of small tensors, which are one block, in one pass.

    The first pass assumes that all elements are `finite`, which takes a third of the time. Those with a statistic that
    is not finite have a second pass.
    """

    def statistics(positions: list[int], pack: Pack, reference64: Pack) -> list[torch.Tensor]:
        c, g = wide(pack.flat), wide(reference64.flat)
        bounds = [[getattr(questions[position], name) for position in positions] for name in ("floor", "slope")]
        floor, slope = (pack.spread(pack.row(bound)) for bound in bounds)
        error, size, alike = (c - g).abs(), g.abs(), pack.row([1.0] * len(positions))
        if not finite:
            special = ~(torch.isfinite(g) & torch.isfinite(c))
            error, size = error.masked_fill_(special, 0.0), size.masked_fill_(special, 0.0)
            alike -= pack.largest((special & ~((c == g) | (torch.isnan(c) & torch.isnan(g)))).double())
        worst, at = pack.peak(error)
        there = [pack.at(value, at) for value in (c, g)]
        ratio = error / (slope * size).add_(floor)
        # 0/0 is NaN and counts as 0: the element is exact and its bound is 0.
        return [
            *(pack.norms(error).square(), pack.norms(size).square(), worst, at),
            *(element.abs() if element.is_complex() else element for element in there),
            pack.largest(ratio if finite else ratio.nan_to_num_(0.0, math.inf)),
            *(pack.largest(error.div_(size.add_(1))), alike),
        ]

    columns = [[question.candidate for question in questions], [question.reference64 for question in questions]]
    found = [
        [
            BlockErrors(*row)._replace(worst_at=row[3] + chunk(candidate.device) * block)
            for block, row in enumerate(rows)
        ]
        for candidate, rows in zip(columns[0], _rows_each(columns, statistics), strict=True)
    ]
    odd = [at for at, blocks in enumerate(found) if not all(math.isfinite(one) for block in blocks for one in block)]
    if finite and odd:
        for position, blocks in zip(odd, errors_each([questions[at] for at in odd], finite=False), strict=True):
            found[position] = blocks
    return found


def distance(candidate: torch.Tensor, reference: torch.Tensor) -> tuple[float, float] | None:
    """Euclidean norms (of candidate - reference, of reference), over the elements finite in both.

    None if NaN and infinities stand in other places. The norms agree with those of `tolerance.difference` to five
    digits and take a fraction of its time. The outputs of timed calls are compared by this function alone.
    """
    if reference.dtype is torch.float32:
        length = SUM_ELEMENTS[candidate.device.type == "cpu"]
        parts = (torch.split(whole.reshape(-1), length) for whole in (candidate, reference))
        norms = [torch.linalg.vector_norm(value) for c, g in zip(*parts, strict=True) for value in (c - g, g)]
        figures = torch.stack(norms).tolist() if norms else []
        apart, size = math.hypot(*figures[::2]), math.hypot(*figures[1::2])
        least, most = (rms * math.sqrt(reference.numel()) for rms in NARROW_RMS)
        if least < size < most and math.isfinite(apart):
            return apart, size
    (blocks,) = errors_each([Compared(candidate, reference, 1.0, 0.0)])
    if not all(block.same_specials for block in blocks):
        return None
    return math.sqrt(sum(of.squares for of in blocks)), math.sqrt(sum(of.reference_squares for of in blocks))


def distances(
    candidates: Sequence[torch.Tensor], references: Sequence[torch.Tensor]
) -> list[tuple[float, float] | None]:
    """The `distance` of each; of small tensors in one pass."""

    def packed(positions: list[int]) -> list[tuple[float, float] | None]:
        c, g = (Pack([of[position] for position in positions]) for of in (candidates, references))
        size, gap = g.flat.double(), c.flat.double() - g.flat
        figures = zip(c.norms(gap).tolist(), c.norms(size).tolist(), strict=True)
        return [
            of if all(map(math.isfinite, of)) else distance(candidates[position], references[position])
            for of, position in zip(figures, positions, strict=True)
        ]

    return by_pack(candidates, lambda position: distance(candidates[position], references[position]), packed)


def baseline_errors(runs: Sequence[torch.Tensor], references: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """(||E_e||, max |E_e|) of each eager float32 run: its error against the float64 reference."""

    def statistics(_: list[int], run: Pack, exact: Pack) -> list[torch.Tensor]:
        error = (wide(run.flat) - wide(exact.flat)).abs().nan_to_num_(0.0, 0.0, 0.0)
        return [run.norms(error), run.largest(error)]

    return [
        (math.hypot(*(length for length, _ in rows)), max((largest for _, largest in rows), default=0.0))
        for rows in _rows_each([runs, references], statistics)
    ]


def norms_each(tensors: Sequence[torch.Tensor]) -> list[float]:
    """The Euclidean norm of each over finite elements, in float64."""

    def statistics(_: list[int], pack: Pack) -> list[torch.Tensor]:
        return [pack.norms(wide(pack.flat).abs().nan_to_num_(0.0, 0.0, 0.0))]

    return [math.hypot(*(length for (length,) in rows)) for rows in _rows_each([tensors], statistics)]


def norm(tensor: torch.Tensor) -> float:
    """The Euclidean norm over finite elements, in float64."""
    return norms_each([tensor])[0]


def are_finite(tensors: Sequence[torch.Tensor]) -> list[bool]:
    """Whether all elements of each are; of small tensors in one pass."""

    def packed(positions: list[int]) -> list[bool]:
        pack = Pack([tensors[position] for position in positions])
        return pack.largest(pack.flat.double().abs()).isfinite().tolist()

    return by_pack(tensors, lambda position: bool(tensors[position].isfinite().all()), packed)


def wide(value: torch.Tensor) -> torch.Tensor:
    """The values in float64 or complex128."""
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def reals(value: torch.Tensor) -> torch.Tensor:
    """The values in float64; a complex tensor gets a last dimension of 2 for real and imaginary parts."""
    return (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).double()


def within_range(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The exact values with infinity where they exceed the range of `dtype`."""
    return torch.where(exact.abs() > torch.finfo(dtype).max, exact.sign() * math.inf, exact)


def _rows_each(
    columns: Sequence[Sequence[torch.Tensor]], statistics: Callable[..., list[torch.Tensor]]
) -> list[list[list[float]]]:
    """For each position, rows of statistics: one for each `chunk` of its tensors, none if they are empty.

    `columns` have tensors that belong together. `statistics` gets positions and a pack of each column, on the device of
    the first one, or on the CPU if they are few elements; it returns the pack's row for each statistic.
    """
    first = columns[0]

    def rows(positions: list[int], parts: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
        few = sum(first[position].numel() for position in positions) <= HOST_ELEMENTS
        device = torch.device("cpu") if few else first[positions[0]].device
        return torch.stack([row.double() for row in statistics(positions, *(Pack(part, device) for part in parts))]).T

    def packed(positions: list[int]) -> list[list[list[float]]]:
        parts = [[column[position] for position in positions] for column in columns]
        return [[row] for row in rows(positions, parts).tolist()]

    def alone(position: int) -> list[list[float]]:
        if not first[position].numel():
            return []
        length = chunk(first[position].device)
        pieces = [torch.split(column[position].reshape(-1), length) for column in columns]
        found = [rows([position], [[piece] for piece in parts]) for parts in zip(*pieces, strict=True)]
        return torch.cat(found).tolist()

    return by_pack(first, alone, packed)


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
