"""Judges a tensor whose inputs have ties: equal values, as whole numbers and pixels have.

At a tie for a maximum, a gradient may go to any of the tied elements, or be split among them. Noise that breaks the
ties shows which elements that affects. The others must be right as anywhere else. Where equal elements of a row, a
plane or the whole tensor get the same sum in all runs, no choice changes it, so that it must be right too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from grader.grading.compare import nonsmooth
from grader.grading.compare.blocks import wide

REMEDY = "give the gradient at a tie to one of the tied elements, or split it among them; drop and scale none of it"
"""The remedy for a gradient that is wrong where elements of an input are equal."""
DISTINCT = 0.9
"""Share of distinct values among nonzero elements below which a tensor has ties. A choice: random numbers have more."""


@dataclass(frozen=True)
class Ties:
    """The runs that show what ties decide, and the values that may tie."""

    runs: Callable[[], Sequence[torch.Tensor]]
    """The eager run, then runs in which noise breaks the ties of inputs."""
    operand: torch.Tensor | None
    """The input whose gradient it is; None for another tensor."""

    def moved(self, reference64: torch.Tensor, slope: float) -> torch.Tensor:
        """The elements that ties and edges decide: noise in the inputs moves them by more than rounding."""
        right = wide(reference64)
        allowed = slope * (right.abs() + right.square().mean().sqrt())
        spread = torch.stack([(wide(run).to(right) - right).abs() for run in self.runs()[1:]]).amax(0)
        return spread > nonsmooth.BASELINE_ERRORS * allowed

    def explain(self, reference64: torch.Tensor, candidate: torch.Tensor, slope: float, rounding: float) -> bool:
        """Whether a candidate is right, but for what ties decide.

        `slope` is the rounding allowed in each element, relative to it and to the rms; `rounding` that in the norm.
        """
        device = candidate.device
        right = wide(reference64.to(device))
        size = right.abs().nan_to_num(0.0, 0.0, 0.0)
        allowed = slope * (size + size.square().mean().sqrt())
        eager, *others = (wide(run.to(device)) for run in self.runs())
        runs = torch.stack([torch.where(run.isfinite(), run, right) for run in others])
        spread = (runs - right).abs().amax(0)
        # Smooth elements move by the noise: so many times the rounding of a long chain of operations.
        moved = spread > nonsmooth.BASELINE_ERRORS * allowed
        room = nonsmooth.FACTOR * spread
        # A choice between terms that grad_output makes small moves an element by little more than rounding.
        little = (spread > allowed) & ~moved
        if self.operand is not None and self.operand.shape == right.shape and not right.is_complex():
            operand = self.operand.to(device)
            gap = torch.where(right.isfinite(), wide(candidate) - right, 0)
            shared = _shared(operand, runs - right, gap, allowed, moved, spread)
            if shared is None:
                return False
            alone = shared < 0
            room = torch.where(alone, room, nonsmooth.FACTOR * shared)
            # At a non-smooth point in 0 itself, all runs agree, and a candidate follows the reference's convention.
            differ = runs.amax(0) - runs.amin(0) > nonsmooth.BASELINE_ERRORS * allowed
            moved, little = (moved & ((operand != 0) | differ)) | ~alone, little & (operand != 0)
        error, smooth = nonsmooth.absolute_error(candidate, reference64.to(device)), ~(moved | little)
        if bool((error > room + allowed)[~smooth].any()):
            return False
        noise = spread[smooth] / nonsmooth.BASELINE_ERRORS
        usual = torch.maximum((eager - right).abs().nan_to_num(0.0, 0.0, 0.0)[smooth], noise)
        largest_usual = float(usual.max()) if usual.numel() else 0.0
        norm = torch.linalg.vector_norm
        bound = 4 * float(norm(usual)) + rounding * float(norm(size[smooth]))
        return float(norm(error[smooth])) <= bound and not bool((error > 8 * largest_usual + allowed)[smooth].any())


def _shared(
    operand: torch.Tensor,
    runs: torch.Tensor,
    gap: torch.Tensor,
    allowed: torch.Tensor,
    moved: torch.Tensor,
    spread: torch.Tensor,
) -> torch.Tensor | None:
    """The largest spread among the elements that share a choice with each, negative where none do.

    `runs` and the candidate's `gap` are distances from the reference. None if a sum over tied elements is wrong, which
    no choice between them changes.
    """
    shared = torch.full_like(spread, -1.0)
    for group in _groups(operand):
        total = _Sums(group, runs, allowed)
        kept = total.kept & total.sums(moved.double()).gt(0)
        if bool((kept & (total.sums(gap).abs() > total.allowed + total.moved)).any()):
            return None
        largest = total.largest(spread)[group].view(moved.shape)
        shared = torch.where(kept[group].view(moved.shape) & (shared < 0), largest, shared)
    return shared


def has_ties(value: object) -> bool:
    """Whether a float32 or float64 tensor has equal elements other than zeros, and is no mask.

    Narrower numbers are equal by rounding alone, and noise that breaks their ties is as large as that.
    """
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.float64):
        return False
    flat, enough = value.reshape(-1), 1 << 12
    some = flat[:enough]
    some = some[some != 0] if some.any() else flat[flat != 0][:enough]  # an image may have a border of zeros
    magnitudes = torch.unique(some.abs())
    return len(magnitudes) > 1 and len(torch.unique(some)) < DISTINCT * len(some)


def broken(value: torch.Tensor, turn: int, size: float, *, sign: int, position: int = 0) -> torch.Tensor:
    """The value with relative noise that breaks its ties, and small numbers for zeros.

    In the first four turns, noise grows or shrinks along the rows or the columns, and for some inputs, by their
    `position`, the other way: equal elements of two of the first four inputs get both orders. A `sign` of 1 lets no
    magnitude shrink, -1 lets none grow; in a turn beyond RUNS, all of them do.
    """
    noise = torch.rand_like(value) * 2 - 1
    if turn < 4 and value.dim():
        shape = value.shape if value.dim() > 1 else (1, *value.shape)
        rows, columns = torch.arange(shape[-2], device=value.device), torch.arange(shape[-1], device=value.device)
        order = rows[:, None] * 7 + columns if turn % 2 else rows[:, None] + columns * 7
        order = (order % 61).expand(shape).reshape(value.shape)
        grows = (turn < 2) != bool((position >> (turn % 2)) & 1)
        noise = 4 * (order if grows else 61 - order) / 61 + noise.abs() / 61
        noise = torch.where(value < 0, -noise, noise)
    if turn >= nonsmooth.MOST_RUNS:
        sign, noise = -sign, noise.abs() / 2 + 0.5  # at least half the size, so that each element moves
    if sign:
        noise = sign * noise.abs()
    least = value.abs()[value != 0].min()
    return torch.where(value == 0, least * size * noise.abs(), value * (1 + size * noise))


class TiedInput(NamedTuple):
    """The gradient of one input with ties."""

    ties: Ties
    right: torch.Tensor
    actual: torch.Tensor
    slope: float
    """As for `Ties.explain`."""

    def weighed(self, by: torch.Tensor | None) -> Weighed:
        """Its error and those of the runs, times a weight and summed, or by element without one."""
        right = wide(self.right)
        gaps = [wide(value).to(right) - right for value in (self.actual, *self.ties.runs()[1:])]
        allowed = self.slope * (right.abs() + right.square().mean().sqrt())
        if by is None:
            runs = torch.stack(gaps[1:])
            return Weighed(gaps[0], runs, allowed.where(~self._chosen_by_no_run(runs, allowed), torch.inf))
        runs = torch.stack([(gap * by).sum() for gap in gaps[1:]])
        return Weighed((gaps[0] * by).sum(), runs, (allowed * by.abs()).sum())

    def _chosen_by_no_run(self, gaps: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        """The elements that no run moves, and that are equal to some that runs move without changing their sum.

        Of many equal elements, sixteen runs choose only some.
        """
        moved = gaps.abs().amax(0) > nonsmooth.BASELINE_ERRORS * allowed
        tied = torch.zeros_like(moved)
        assert self.ties.operand is not None
        for group in _groups(self.ties.operand.to(moved.device)):
            total = _Sums(group, gaps, allowed)
            tied |= (total.kept & total.sums(moved.double()).gt(0))[group].view(moved.shape)
        return tied & ~moved


class Weighed(NamedTuple):
    """Figures of a part, or their sums over parts."""

    error: torch.Tensor
    runs: torch.Tensor
    allowed: torch.Tensor

    @property
    def is_wrong(self) -> bool:
        """Whether something that no choice changes is wrong."""
        most = self.runs.abs().amax(0)
        kept = most <= nonsmooth.BASELINE_ERRORS * self.allowed
        # By chance, all runs choose so that what they move cancels nearly, as in one of 230 draws of a clamp's edges.
        return bool((kept & (self.error.abs() > self.allowed + nonsmooth.FACTOR * most)).any())


def wrong_together(inputs: Sequence[TiedInput]) -> bool:
    """Whether the gradients of inputs whose elements may tie with one another are wrong as a whole.

    What an element of several inputs of one shape gets in all of them, and the derivative for inputs that all grow
    alike, are the same for each choice if they are in all runs.
    """
    operands = [one.ties.operand.to(one.right.device).double() for one in inputs if one.ties.operand is not None]
    if not all(bool(value.isfinite().all()) for one in inputs for value in (one.right, one.actual)):
        return False
    shapes = {one.right.shape for one in inputs}
    together = [[one.weighed(None) for one in inputs if one.right.shape == shape] for shape in shapes]
    grown = [one.weighed(operand) for one, operand in zip(inputs, operands, strict=True)]
    alike = [group for group in (*together, grown) if len(group) > 1 or group is grown]
    return any(_total(group).is_wrong for group in alike if group)


def _total(group: Sequence[Weighed]) -> Weighed:
    first, *others = group
    for one in others:
        first = Weighed(*(mine + other for mine, other in zip(first, one, strict=True)))
    return first


def _groups(operand: torch.Tensor) -> Iterator[torch.Tensor]:
    """The group of each element, flat: equal elements of one line, then of one plane, of one row, of all."""
    values = torch.unique(operand, return_inverse=True)[1].reshape(-1)
    dims = range(operand.dim())
    for free in sorted({(dim,) for dim in dims} | set(_leading(operand.dim())), key=len):
        block = torch.zeros(operand.shape, dtype=torch.int64, device=operand.device)
        for dim in dims:
            if dim not in free:
                index = torch.arange(operand.shape[dim], device=operand.device)
                block = block * operand.shape[dim] + index.view(-1, *[1] * (operand.dim() - dim - 1))
        yield torch.unique(block.reshape(-1) * (int(values.max()) + 1) + values, return_inverse=True)[1]


def _leading(count: int) -> Iterator[tuple[int, ...]]:
    """The last two, three, ... and all of so many dimensions."""
    for start in itertools.chain(range(count - 2, 0, -1), [0] if count else []):
        yield tuple(range(start, count))


class _Sums:
    """The sum of each group's elements."""

    def __init__(self, group: torch.Tensor, gaps: torch.Tensor, allowed: torch.Tensor) -> None:
        """`gaps` are the differences of the runs from the right tensor."""
        self._group, self._count = group, int(group.max()) + 1
        self.allowed = self.sums(allowed)
        self.moved = torch.stack([self.sums(gap).abs() for gap in gaps]).amax(0)
        most = torch.stack([self.sums(gap.abs()) for gap in gaps]).amax(0)
        # A choice moves gradient between elements and keeps their sum. That of a small gradient, which moves alone,
        # changes by little too.
        self.kept = (self.moved <= nonsmooth.BASELINE_ERRORS * self.allowed) & (self.moved <= most / nonsmooth.FACTOR)
        """The groups whose sum no choice changes."""

    def sums(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of each group."""
        return torch.zeros(self._count, dtype=value.dtype, device=value.device).index_add_(
            0, self._group, value.reshape(-1)
        )

    def largest(self, value: torch.Tensor) -> torch.Tensor:
        """The largest element of each group, of a nonnegative tensor."""
        return torch.zeros(self._count, dtype=value.dtype, device=value.device).scatter_reduce_(
            0, self._group, value.reshape(-1), "amax"
        )
