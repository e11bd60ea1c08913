"""Compares runs of the reference: each tensor's float64 values, errors and longest reduction."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Protocol

import torch

from grader.grading.compare import blocks, narrow_types, nonsmooth, ties, tolerance
from grader.grading.compare.blocks import LARGE_BYTES, is_large
from grader.grading.oracle.case import Table
from grader.grading.oracle.drawing import is_float, perturbed, perturbed_state, ties_broken
from grader.grading.oracle.evaluation import MODEL, MODEL64, Evaluation, Pass, Traits
from grader.grading.oracle.pace import PERTURBED_RUNS, Pace
from grader.machine.backends import backend
from grader.verdict.models import Device

STRICT_SHARE = 0.125
"""Share of a slow reference's cases in which `Expected.strict` is asked. A choice: those sixteen runs take longer than
all others together, and nobody may count on their absence."""
_CHOICE = random.SystemRandom()


class _Tracker:
    """One tensor: the float64 values and the largest errors of the eager runs."""

    def __init__(self, eager: torch.Tensor, exact: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(eager.shape), eager.dtype
        self.real = eager.dtype.is_floating_point or eager.dtype.is_complex
        self.overflows: torch.Tensor | None = None
        if eager.dtype.is_floating_point and not bool(eager.isfinite().all()):
            exact = blocks.within_range(exact.to(eager.device), eager.dtype)
            self.overflows = exact.isfinite() & ~eager.isfinite()
        self.reference64 = exact if self.real else eager
        self.error_l2 = self.error_max = self.error_along = 0.0
        self.ambiguous = None if self.real else exact != eager
        self.spread: torch.Tensor | None = None
        self.runs = [eager]
        """The eager run, then those behind the spread, if ties are judged by them."""
        for run in (eager, *narrow_types.rounded_once(self.reference64, self.dtype)):
            self.add(run)

    def add(self, run: torch.Tensor) -> None:
        if self.ambiguous is not None:
            self.ambiguous |= run != self.reference64
            return
        l2, largest = blocks.baseline_error(run, self.reference64)
        self.error_l2, self.error_max = max(self.error_l2, l2), max(self.error_max, largest)
        self.error_along = max(self.error_along, narrow_types.along_of(run, self.reference64))

    def spread_by(self, run: torch.Tensor, *, keep: bool) -> None:
        error = nonsmooth.absolute_error(run, self.reference64)
        self.spread = error if self.spread is None else torch.maximum(self.spread, error)
        if keep:
            self.runs.append(run)


class Trackers:
    """All tensors of a case."""

    def __init__(
        self,
        eager: Evaluation,
        reference64: Evaluation | None,
        *,
        has_float64: bool,
        again: Callable[[int, float], Iterator[Evaluation]] | None = None,
        inputs: Sequence[object] = (),
    ) -> None:
        """`again(count, ulps)` makes other eager runs, as `perturbed_runs` does; ties of `inputs` are judged."""
        self._has_float64, self._again = has_float64, again
        self._tied = {
            f"input[{index}]": value
            for index, value in enumerate(inputs)
            if isinstance(value, torch.Tensor) and ties.has_ties(value)
        }
        self.strict, self.rounds_operands = True, False
        """As in `Expected`."""
        exact = reference64 or eager
        self.exact = reference64 is not None
        """Whether the reference values are from a float64 run."""
        self._tables: dict[Table, dict[str, _Tracker]] = {}
        for table in ("outputs", "gradients", "buffers"):
            pairs = ((name, value, getattr(exact, table)[name]) for name, value in getattr(eager, table).items())
            self._tables[table] = {
                name: _Tracker(value, other) for name, value, other in pairs if value is not None and other is not None
            }

    def add(self, run: Evaluation) -> None:
        """Record the errors of another eager run, on perturbed inputs and parameters."""
        for table, trackers in self._tables.items():
            for name, tracker in trackers.items():
                if (value := getattr(run, table)[name]) is not None:  # another seed may need no gradient
                    tracker.add(value)

    def expected(
        self, table: Table, length: Callable[[torch.Tensor], float], labels: Mapping[str, str] | None = None
    ) -> dict[str, tolerance.Expected]:
        """The expected tensors of a table by name.

        `length` returns the longest reduction behind a tensor; `labels` maps names to the names in messages.
        """
        sizes = [tracker.reference64.numel() for trackers in self._tables.values() for tracker in trackers.values()]
        spreads = self._again is not None and max(sizes, default=0) < nonsmooth.MAX_ELEMENTS
        if max(sizes, default=0) > nonsmooth.MAX_ELEMENTS // nonsmooth.RUNS:
            self._tied = {}

        def tied(name: str, tracker: _Tracker) -> ties.Ties | None:
            operand = self._tied.get(name) if table == "gradients" else None
            return ties.Ties(partial(self._runs, tracker), operand) if self._tied and spreads and tracker.real else None

        return {
            name: tolerance.Expected(
                name=(labels or {}).get(name, name),
                shape=tracker.shape,
                dtype=tracker.dtype,
                reference64=tracker.reference64,
                error_l2=tracker.error_l2,
                error_max=tracker.error_max,
                error_along=tracker.error_along,
                reduction_length=length(tracker.reference64),
                ambiguous=tracker.ambiguous,
                overflows=tracker.overflows,
                has_float64=self._has_float64,
                spread=partial(self._spread, tracker) if spreads else None,
                strict=self.strict,
                rounds_operands=self.rounds_operands,
                ties=tied(name, tracker),
            )
            for name, tracker in self._tables[table].items()
        }

    def _spread(self, tracker: _Tracker) -> torch.Tensor:
        """The spread of a tensor; the first call makes the runs, for all tensors."""
        if tracker.spread is None:
            assert self._again is not None
            for run in self._again(nonsmooth.RUNS, nonsmooth.ULPS):
                for table, trackers in self._tables.items():
                    for name, other in trackers.items():
                        if (value := getattr(run, table)[name]) is not None:
                            other.spread_by(value, keep=bool(self._tied))
        assert tracker.spread is not None
        return tracker.spread

    def _runs(self, tracker: _Tracker) -> Sequence[torch.Tensor]:
        """The eager run of a tensor and those behind its spread."""
        self._spread(tracker)
        return tracker.runs


class Ask(Protocol):
    """Has the reference run passes, and yields their results in order."""

    def __call__(self, passes: Iterable[Pass], /, *, streamed: bool = False) -> Iterator[Evaluation]: ...


def track(
    ask: Ask,
    plain: Pass,
    traits: Traits,
    device: Device,
    *,
    pace: Pace,
    affords_float64: Callable[[Evaluation], bool] | None = None,
    tf32: bool = False,
) -> tuple[Evaluation, Trackers]:
    """An eager run, `plain`, and the errors of it and of perturbed runs against the float64 reference.

    `ask` runs the reference now, and again when a candidate's error may be explained by non-smooth points. If
    `affords_float64` returns False, the values of the eager run replace the float64 values. `pace` gets the times of
    the runs; a slow reference has one perturbed run. `tf32` adds one on operands rounded to it. On a GPU, the eager
    and the float64 run are asked alone, as they are where one job cannot hold all runs.
    """

    def alone(one: Pass) -> Evaluation:
        started = pace.clock()
        result = next(ask([one]))
        pace.note(one.model, started)
        return result

    if not traits.has_float64:
        eager = alone(plain)
        return eager, Trackers(eager, None, has_float64=False)
    rounds = tf32 and traits.flops > 0
    exact = replace(plain, model=MODEL64)
    again = partial(perturbed_runs, ask, plain.in_tf32() if rounds else plain, device)
    large = any(map(is_large, plain.inputs))
    # Each run of millions of elements has as many near non-smooth points as another. Without parameters, no run is
    # made, because a perturbed copy of large inputs takes too much memory.
    count = int(any(map(is_float, plain.state.values()))) if large else PERTURBED_RUNS
    reference64: Evaluation | None
    joined = (count + 2) * plain.nbytes(traits) < LARGE_BYTES and not backend(device).own_memory
    if large or affords_float64 is not None or not joined:
        eager = alone(plain)
        reference64 = alone(exact) if affords_float64 is None or affords_float64(eager) else None
        others = _others(again, count, pace)
    else:
        started = pace.clock()
        moved = _perturbed(plain, device, count, nonsmooth.PERTURBATION_ULPS)
        eager, reference64, *more = ask(chain([plain, exact], moved))
        pace.note(MODEL, started, runs=count + 2)
        others = iter(more)
    trackers = Trackers(eager, reference64, has_float64=True, again=again, inputs=plain.inputs)
    for other in others:
        trackers.add(other)
    if rounds:
        trackers.add(alone(plain.in_tf32()))
    trackers.rounds_operands = rounds
    # In a deep network most checks would make those runs, since rounding alone exceeds what needs none.
    trackers.strict = not pace.is_slow() or _CHOICE.random() < STRICT_SHARE
    return eager, trackers


def _others(again: Callable[[int, float], Iterator[Evaluation]], count: int, pace: Pace) -> Iterator[Evaluation]:
    """Yields perturbed runs; only one if it is slow.

    The eager run, which may have loaded kernels, cannot tell that.
    """
    if not pace.is_slow():
        yield from again(count, nonsmooth.PERTURBATION_ULPS)
        return
    started = pace.clock()
    for run in again(min(count, 1), nonsmooth.PERTURBATION_ULPS):
        pace.note(MODEL, started)
        yield run
    if not pace.is_slow():
        yield from again(count - 1, nonsmooth.PERTURBATION_ULPS)


def perturbed_runs(ask: Ask, plain: Pass, device: Device, count: int, ulps: float) -> Iterator[Evaluation]:
    """Yields eager runs with noise of `ulps` units of float32's epsilon on inputs and parameters.

    Large inputs stay as they are if there are parameters.
    """
    return ask(_perturbed(plain, device, count, ulps), streamed=any(map(is_large, plain.inputs)))


def _perturbed(plain: Pass, device: Device, count: int, ulps: float) -> Iterator[Pass]:
    keeps_inputs = any(map(is_large, plain.inputs)) and any(map(is_float, plain.state.values()))
    for turn in range(count):
        inputs = plain.inputs
        if not keeps_inputs:
            # Those behind the spread order ties in every way.
            wide = ulps >= nonsmooth.ULPS
            inputs = ties_broken(inputs, device, turn, ulps) if wide else perturbed(inputs, device, ulps)
        # A draw that matters no more than rounding (`randomness`) is one more perturbation.
        yield replace(plain, inputs=inputs, state=perturbed_state(plain.state, device, ulps), seed=turn + 1)


@dataclass(frozen=True)
class ReductionLengths:
    """Estimates from the counted operations, the sizes of tensors, and the lengths of scans."""

    flops: float
    """Operations of one forward's matrix products and convolutions; a multiply-add counts as 2."""
    largest: int
    """Elements of the largest input or output."""
    scanned: int = 0
    """Elements of the longest running sum or product: its last element depends on all of them."""

    def of_output(self, output: torch.Tensor) -> float:
        """K of an output.

        A matrix product of K terms costs 2K operations an element. A plain sum reads largest / size elements for each.
        """
        size = max(output.numel(), 1)
        return max(1.0, self.flops / (2 * size), self.largest / size, self.scanned)

    def of_gradient(self, gradient: torch.Tensor) -> float:
        """K of a gradient.

        The gradient of a broadcast vector, such as a bias or a scale, is a sum over the broadcast dimensions. The
        gradient of a matrix is a sum of products.
        """
        size = max(gradient.numel(), 1)
        vector = sum(extent > 1 for extent in gradient.shape) <= 1
        return max(1.0, self.largest / size, self.scanned, 0.0 if vector else self.flops / (2 * size))


def reduction_lengths(plain: Pass, eager: Evaluation, traits: Traits) -> dict[Table, Callable[[torch.Tensor], float]]:
    """The function that returns K of a tensor, by table."""
    sizes = [value.numel() for value in (*plain.inputs, *eager.outputs.values()) if isinstance(value, torch.Tensor)]
    of = ReductionLengths(traits.flops, max(sizes, default=1), traits.scanned)
    return {"outputs": of.of_output, "buffers": of.of_output, "gradients": of.of_gradient}
