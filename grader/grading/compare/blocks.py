"""Statistics of tensors, block by block. Small tensors have theirs together.

Values without more than float32's digits are compared in float32, which takes a GPU a third of the time of float64:
differences of values near each other are exact there. Each pass synchronizes with the GPU once, at its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from grader.grading.compare.together import HOST_ELEMENTS, Pack, by_pack, chunk

NARROW = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes whose values are exact in float32."""
NARROW_RMS = (1e-12, 1e14)
"""Root mean squares between which squares can be summed in float32. The differences are some 1e-8 of these values or
more, and their squares must keep five digits as subnormal numbers (1.4e-45) and not overflow (3e38)."""
Rows = list[list[float]]
"""The figures of one tensor: a row for each `chunk` of it, none if it is empty."""
Statistics = Callable[..., list[torch.Tensor]]
"""Figures of tensors, each a row of the packs: called with their positions, a pack of each column, and `finite`.

The last figure is the Euclidean norm of the last column. All elements are taken to be finite; if a figure is not, or if
squares leave float32's range, the figures are asked again with `finite=False`: over finite elements, in float64.
"""


def rows_each(columns: Sequence[Sequence[torch.Tensor]], statistics: Statistics) -> list[Rows]:
    """The rows of figures for each position of the columns, which have tensors that belong together.

    They are computed on the device of the first column's tensor, or on the CPU if they are few elements.
    """
    found = _rows_each(columns, list(range(len(columns[0]))), statistics, finite=True)
    odd = [at for at, rows in enumerate(found) if not _is_plain(rows, *(column[at] for column in columns))]
    if odd:
        for at, rows in zip(odd, _rows_each(columns, odd, statistics, finite=False), strict=True):
            found[at] = rows
    return found


def _rows_each(
    columns: Sequence[Sequence[torch.Tensor]], chosen: list[int], statistics: Statistics, *, finite: bool
) -> list[Rows]:
    first = [columns[0][position] for position in chosen]

    def rows(among: list[int], parts: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
        few = sum(first[at].numel() for at in among) <= HOST_ELEMENTS
        device = torch.device("cpu") if few else first[among[0]].device
        figures = statistics([chosen[at] for at in among], *(Pack(part, device) for part in parts), finite=finite)
        return torch.stack([figure.double() for figure in figures]).T

    def packed(among: list[int]) -> list[Rows]:
        parts = [[column[chosen[at]] for at in among] for column in columns]
        return [[row] for row in rows(among, parts).tolist()]

    def alone(at: int) -> Rows:
        if not first[at].numel():
            return []
        # The last block may be few elements, and is compared where the others are.
        pieces = in_blocks(*(column[chosen[at]] for column in columns))
        return torch.cat([rows([at], [[piece] for piece in parts]) for parts in pieces]).tolist()

    return by_pack(first, alone, packed)


def in_blocks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Flat pieces of tensors of one size, as large as the device of the first compares at a time."""
    size = chunk(tensors[0].device)
    return zip(*(torch.split(tensor.reshape(-1), size) for tensor in tensors), strict=True)


def _is_plain(rows: Rows, *tensors: torch.Tensor) -> bool:
    """Whether all elements are finite, and sums of squares right to five digits, as these figures show."""
    if not all(math.isfinite(figure) for row in rows for figure in row):
        return False
    if any(tensor.dtype not in NARROW for tensor in tensors):
        return True  # the sums were in float64
    size = chunk(tensors[0].device)
    rests = (math.sqrt(min(size, tensors[0].numel() - size * block)) for block in range(len(rows)))
    return all(
        not row[-1] or NARROW_RMS[0] < row[-1] / root < NARROW_RMS[1] for row, root in zip(rows, rests, strict=True)
    )


def comparable(candidate: torch.Tensor, reference64: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in float32 if that has all their digits, else in float64 or complex128."""
    if candidate.dtype in NARROW and reference64.dtype in NARROW:
        return candidate.float(), reference64.float()
    return wide(candidate), wide(reference64)


def baseline_errors(runs: Sequence[torch.Tensor], references: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """(||E_e||, max |E_e|) of each eager float32 run: its error against float64 where both are finite."""

    def statistics(_: list[int], run: Pack, exact: Pack, *, finite: bool) -> list[torch.Tensor]:
        if finite:
            value, right = comparable(run.flat, exact.flat)
            error = value - right
        else:
            right = wide(exact.flat).nan_to_num(0.0, 0.0, 0.0)
            error = (wide(run.flat) - wide(exact.flat)).abs().nan_to_num_(0.0, 0.0, 0.0)
        return [run.norms(error), run.largest(error), exact.norms(right)]

    return [
        (math.hypot(*(length for length, *_ in rows)), max((largest for _, largest, _ in rows), default=0.0))
        for rows in rows_each([runs, references], statistics)
    ]


def norms_each(tensors: Sequence[torch.Tensor]) -> list[float]:
    """The Euclidean norm of each over finite elements, to five digits at least."""

    def statistics(_: list[int], pack: Pack, *, finite: bool) -> list[torch.Tensor]:
        if finite:
            return [pack.norms(comparable(pack.flat, pack.flat)[0])]
        return [pack.norms(wide(pack.flat).abs().nan_to_num_(0.0, 0.0, 0.0))]

    return [math.hypot(*(length for (length,) in rows)) for rows in rows_each([tensors], statistics)]


def norm(tensor: torch.Tensor) -> float:
    """The Euclidean norm over finite elements, to five digits at least."""
    return norms_each([tensor])[0]


def are_finite(tensors: Sequence[torch.Tensor]) -> list[bool]:
    """Whether all elements of each are; of small tensors in one pass, of a large one block by block."""

    def alone(position: int) -> bool:
        # isfinite() takes temporaries of more than the tensor's size, and no floats of eight bits.
        pieces = (piece.float() if piece.itemsize == 1 else piece for (piece,) in in_blocks(tensors[position]))
        return bool(torch.stack([piece.isfinite().all() for piece in pieces]).all())

    def packed(positions: list[int]) -> list[bool]:
        pack = Pack([tensors[position] for position in positions])
        return pack.largest(pack.flat.double().abs()).isfinite().tolist()

    return by_pack(tensors, alone, packed)


def wide(value: torch.Tensor) -> torch.Tensor:
    """The values in float64 or complex128."""
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def kth_smallest(values: torch.Tensor, k: int) -> torch.Tensor:
    """The k-th smallest of a flat tensor, from 1.

    On a GPU, `kthvalue` takes 80 ms for eight million elements, and sorting them 1 ms.
    """
    return values.kthvalue(k).values if values.device.type == "cpu" else values.sort().values[k - 1]


def reals(value: torch.Tensor) -> torch.Tensor:
    """The values in float64; a complex tensor gets a last dimension of 2 for real and imaginary parts."""
    return (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).double()


def within_range(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The exact values with infinity where they exceed the range of `dtype`."""
    return torch.where(exact.abs() > torch.finfo(dtype).max, exact.sign() * math.inf, exact)


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


def number(value: float | None) -> str:
    """Six digits; `nothing` for None."""
    return "nothing" if value is None else f"{value:.6g}"


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one dtype agree in every bit; NaNs are equal if their bits are."""
    one, other = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))
    return torch.equal(one, other.to(one.device))
