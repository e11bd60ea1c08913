"""Compares runs of the reference: each tensor's float64 values, errors and longest reduction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from grader.grading.compare import blocks, narrow_types, nonsmooth
from grader.grading.compare.blocks import is_large
from grader.grading.compare.expected import Expected
from grader.grading.compare.tolerance import BASELINE_FACTOR_L2, with_room_for_zeros
from grader.grading.oracle.case import Table
from grader.grading.oracle.evaluation import Evaluation, Pass
from grader.grading.oracle.perturbed_runs import Again
from grader.grading.oracle.spreads import Spreads
from grader.grading.oracle.traits import Traits


class _Tracker:
    """One tensor: the float64 values and the largest errors of the eager runs."""

    def __init__(self, eager: torch.Tensor, exact: torch.Tensor, *, finite: bool) -> None:
        """`finite`: whether all elements of the eager run are."""
        self.shape, self.dtype = tuple(eager.shape), eager.dtype
        self.real = eager.dtype.is_floating_point or eager.dtype.is_complex
        self.overflows: torch.Tensor | None = None
        self.infinite: torch.Tensor | None = None
        """As in `Expected`."""
        if eager.dtype.is_floating_point and not finite:
            self.infinite = where if bool((where := ~exact.isfinite()).any()) else None
            exact = blocks.within_range(exact.to(eager.device), eager.dtype)
            self.overflows = exact.isfinite() & ~eager.isfinite()
        self.reference64 = exact if self.real else eager
        self.error_l2 = self.error_max = self.error_along = 0.0
        self.ambiguous = None if self.real else exact != eager
        self.eager = eager
        for run in narrow_types.rounded_once(self.reference64, self.dtype):
            (error,) = blocks.baseline_errors([run], [self.reference64])
            self.add(run, error)

    def add(self, run: torch.Tensor, error: tuple[float, float], share: float = 1.0) -> None:
        """Record a run with a share of its baseline error, which means nothing for integers."""
        if self.ambiguous is not None:
            self.ambiguous |= run != self.reference64
            return
        self.error_l2, self.error_max = max(self.error_l2, share * error[0]), max(self.error_max, share * error[1])
        self.error_along = max(self.error_along, narrow_types.along_of(run, self.reference64))

    def eager_error(self) -> torch.Tensor:
        """The absolute error of each element of the eager run."""
        return nonsmooth.absolute_error(self.eager, self.reference64)


class Trackers:
    """All tensors of a case."""

    def __init__(
        self,
        eager: Evaluation,
        reference64: Evaluation | None,
        *,
        has_float64: bool,
        again: Again | None = None,
        inputs: Sequence[object] = (),
        asserts: bool = True,
    ) -> None:
        """`again` makes other eager runs; ties of `inputs` are judged. `asserts` is as in `Traits`."""
        self._has_float64 = has_float64
        self.strict, self.rounds_operands = True, False
        """As in `Expected`."""
        exact = reference64 or eager
        self.exact = reference64 is not None
        """Whether the reference values are from a float64 run."""
        self._tables: dict[Table, dict[str, _Tracker]] = {"outputs": {}, "gradients": {}, "buffers": {}}
        found = [
            (table, name, value, other)
            for table in self._tables
            for name, value in getattr(eager, table).items()
            if value is not None and (other := getattr(exact, table)[name]) is not None
        ]
        finite = blocks.are_finite([value for *_, value, _ in found])
        for (table, name, value, other), is_finite in zip(found, finite, strict=True):
            self._tables[table][name] = _Tracker(value, other, finite=is_finite)
        tensors = {(table, name): tracker for table, named in self._tables.items() for name, tracker in named.items()}
        exact_values = {key: tracker.reference64 for key, tracker in tensors.items()}
        eager_values = {key: tracker.eager for key, tracker in tensors.items()}
        small = max((value.numel() for value in exact_values.values()), default=0) < nonsmooth.MAX_ELEMENTS
        self._spreads = Spreads(eager_values, exact_values, again, inputs, asserts=asserts) if again and small else None
        self.add(eager)

    def silenced(self, plain: Pass) -> Pass | None:
        """The pass with a grad_output of zero where its output is infinite; None if it is zero there.

        An infinite element has no derivative, and a loss that is finite sends zero back to it. What a formula of the
        reference makes of another number is no gradient.
        """
        changed = {}
        for name, given in plain.cotangents.items():
            infinite = self._tables["outputs"][name].infinite
            if infinite is not None and bool(given[infinite.to(given.device)].any()):
                changed[name] = given.masked_fill(infinite.to(given.device), 0)
        return replace(plain, cotangents={**plain.cotangents, **changed}) if changed else None

    def add_in_tf32(self, runs: Iterator[Evaluation]) -> None:
        """Record the errors of two runs, on operands rounded to TensorFloat-32 and on operands cut to it.

        What tensor cores cut off has a direction, and adds up to over four times the error of rounding. As all kernels
        cut alike, one and a half times that suffices; bfloat16 has twice.
        """
        self.add(next(runs))
        self.add(next(runs), share=1.5 / BASELINE_FACTOR_L2)

    def add(self, run: Evaluation, *, share: float = 1.0) -> None:
        """Record the errors of an eager run, or a share of them; all but the first are on perturbed operands."""
        small = list[tuple[_Tracker, torch.Tensor]]()
        for tracker, value in self._values(run):
            if value is tracker.reference64:
                tracker.add(value, (0.0, 0.0))
            elif is_large(value):  # a streamed run has one of these at a time
                (error,) = blocks.baseline_errors([value], [tracker.reference64])
                tracker.add(value, error, share)
            else:
                small.append((tracker, value))
        errors = blocks.baseline_errors([value for _, value in small], [tracker.reference64 for tracker, _ in small])
        for (tracker, value), error in zip(small, errors, strict=True):
            tracker.add(value, error, share)

    def _values(self, run: Evaluation) -> Iterator[tuple[_Tracker, torch.Tensor]]:
        """Each tensor of a run with its tracker; another seed may need fewer gradients."""
        for table, trackers in self._tables.items():
            for name, tracker in trackers.items():
                if (value := getattr(run, table)[name]) is not None:
                    yield tracker, value

    def expected(
        self, table: Table, length: Callable[[torch.Tensor], float], labels: Mapping[str, str] | None = None
    ) -> dict[str, Expected]:
        """The expected tensors of a table by name.

        `length` returns the longest reduction behind a tensor; `labels` maps names to the names in messages.
        """
        spreads = self._spreads
        found = {
            name: Expected(
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
                infinite=tracker.infinite,
                has_float64=self._has_float64,
                spread=partial(spreads.of, (table, name)) if spreads else None,
                eager_error=tracker.eager_error if spreads else None,
                strict=self.strict,
                rounds_operands=self.rounds_operands,
                ties=spreads.ties_of((table, name)) if spreads and tracker.real else None,
            )
            for name, tracker in self._tables[table].items()
        }
        return with_room_for_zeros(found) if table == "gradients" else found


def reduction_lengths(
    traits: Traits, inputs: Iterable[object], eager: Evaluation
) -> dict[Table, Callable[[torch.Tensor], float]]:
    """The function that returns K of a tensor, the longest reduction behind it, by table.

    K is estimated from the operations of matrix products and convolutions, the longest scan, and the sizes of inputs
    and outputs. A product of K terms costs 2K operations an element; a plain sum reads as many elements for each as
    the largest tensor has.
    """
    flops, scanned, tensors = traits.flops, traits.scanned, (*inputs, *eager.outputs.values())
    largest = max((value.numel() for value in tensors if isinstance(value, torch.Tensor)), default=1)

    def of_output(output: torch.Tensor) -> float:
        size = max(output.numel(), 1)
        return max(1.0, flops / (2 * size), largest / size, scanned)

    def of_gradient(gradient: torch.Tensor) -> float:
        """A broadcast vector's, as a bias's, is a sum over the broadcast dimensions; a matrix's is one of products."""
        size = max(gradient.numel(), 1)
        vector = sum(extent > 1 for extent in gradient.shape) <= 1
        return max(1.0, largest / size, scanned, 0.0 if vector else flops / (2 * size))

    return {"outputs": of_output, "buffers": of_output, "gradients": of_gradient}
