"""Gathers what several runs of the reference say about each tensor, holding no more than the exact values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch

from grader.grading.compare import blocks, nonsmooth, tolerance
from grader.grading.oracle.case import Case, Table
from grader.grading.oracle.drawing import PERTURBATION_ULPS, is_float, perturbed, perturbed_state
from grader.grading.oracle.evaluation import MODEL, MODEL64, Evaluation, Traits
from grader.grading.oracle.large import is_large
from grader.verdict.models import Device

PERTURBED_RUNS, RUNS_OF_LARGE = 3, 1
"""Among millions of elements, each run has as many at a kink as another."""


class _Tracker:
    """One tensor: exact values, and how far the eager runs are from them."""

    def __init__(self, eager: torch.Tensor, exact: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(eager.shape), eager.dtype
        self.real = eager.dtype.is_floating_point or eager.dtype.is_complex
        self.overflows: torch.Tensor | None = None
        if eager.dtype.is_floating_point and not bool(eager.isfinite().all()):
            exact = tolerance.within_range(exact.to(eager.device), eager.dtype)
            self.overflows = exact.isfinite() & ~eager.isfinite()
        self.reference64 = exact if self.real else eager
        self.error_l2 = self.error_max = 0.0
        self.ambiguous = None if self.real else exact != eager
        self.spread: torch.Tensor | None = None
        self.add(eager)

    def add(self, run: torch.Tensor) -> None:
        if self.ambiguous is not None:
            self.ambiguous |= run != self.reference64
            return
        l2, largest = blocks.baseline_error(run, self.reference64)
        self.error_l2, self.error_max = max(self.error_l2, l2), max(self.error_max, largest)

    def spread_by(self, run: torch.Tensor) -> None:
        apart = nonsmooth.apart(run, self.reference64)
        self.spread = apart if self.spread is None else torch.maximum(self.spread, apart)


class Trackers:
    """All tensors of a case."""

    def __init__(
        self,
        eager: Evaluation,
        reference64: Evaluation | None,
        *,
        has_float64: bool,
        run: Callable[[float], Evaluation] | None = None,
    ) -> None:
        """`run`: another eager run, on inputs and parameters perturbed by so many units of float32's spacing."""
        self._has_float64, self._run = has_float64, run
        exact = reference64 or eager
        self.exact = reference64 is not None
        """The values are a float64 run's."""
        self._tables: dict[Table, dict[str, _Tracker]] = {}
        for table in ("outputs", "gradients", "buffers"):
            pairs = ((name, value, getattr(exact, table)[name]) for name, value in getattr(eager, table).items())
            self._tables[table] = {
                name: _Tracker(value, other) for name, value, other in pairs if value is not None and other is not None
            }

    def add(self, run: Evaluation) -> None:
        """Another eager run, on perturbed inputs and parameters."""
        for table, trackers in self._tables.items():
            for name, tracker in trackers.items():
                tracker.add(getattr(run, table)[name])

    def expected(
        self, table: Table, length: Callable[[torch.Tensor], float], labels: Mapping[str, str] | None = None
    ) -> dict[str, tolerance.Expected]:
        """By name; `length` gives the longest reduction behind a tensor, `labels` what a message calls it."""
        sizes = [tracker.reference64.numel() for trackers in self._tables.values() for tracker in trackers.values()]
        spreads = self._run is not None and max(sizes, default=0) < nonsmooth.MANY
        return {
            name: tolerance.Expected(
                name=(labels or {}).get(name, name),
                shape=tracker.shape,
                dtype=tracker.dtype,
                reference64=tracker.reference64,
                error_l2=tracker.error_l2,
                error_max=tracker.error_max,
                reduction_length=length(tracker.reference64),
                ambiguous=tracker.ambiguous,
                overflows=tracker.overflows,
                has_float64=self._has_float64,
                spread=partial(self._spread, tracker) if spreads else None,
            )
            for name, tracker in self._tables[table].items()
        }

    def _spread(self, tracker: _Tracker) -> torch.Tensor:
        """The runs are made when the first tensor needs them."""
        if tracker.spread is None:
            assert self._run is not None
            for _ in range(nonsmooth.RUNS):
                run = self._run(nonsmooth.ULPS)
                for table, trackers in self._tables.items():
                    for name, other in trackers.items():
                        other.spread_by(getattr(run, table)[name])
        assert tracker.spread is not None
        return tracker.spread


class Run(Protocol):
    """Runs one of the reference's models, by name, on inputs and a state."""

    def __call__(
        self, model: str, inputs: Sequence[object], state: Mapping[str, torch.Tensor], /, *, streamed: bool = False
    ) -> Evaluation: ...


def track(
    evaluate: Run,
    traits: Traits,
    inputs: Sequence[object],
    state: Mapping[str, torch.Tensor],
    device: Device,
    *,
    perturbed_runs: int | None = None,
    affords_float64: Callable[[Evaluation], bool] | None = None,
) -> tuple[Evaluation, Trackers]:
    """An eager run, and how far it and some on perturbed inputs and parameters are from the exact values.

    `evaluate` runs one of the reference's models, by name, on inputs and parameters; now, and when a candidate's tensor
    may be wrong at a kink alone. Where `affords_float64` says no, the eager run stands in for the exact values.
    """

    large = any(map(is_large, inputs))
    moves_inputs = not large or not any(map(is_float, state.values()))

    def run(ulps: float) -> Evaluation:
        moved = perturbed(inputs, device, ulps) if moves_inputs else inputs
        return evaluate(MODEL, moved, perturbed_state(state, device, ulps), streamed=large)

    eager = evaluate(MODEL, inputs, state)
    exact = traits.has_float64 and (affords_float64 is None or affords_float64(eager))
    reference64 = evaluate(MODEL64, inputs, state) if exact else None
    perturbs = traits.has_float64
    trackers = Trackers(eager, reference64, has_float64=traits.has_float64, run=run if perturbs else None)
    if perturbs:
        if perturbed_runs is None:
            perturbed_runs = (RUNS_OF_LARGE if not moves_inputs else 0) if large else PERTURBED_RUNS
        for _ in range(perturbed_runs):
            trackers.add(run(PERTURBATION_ULPS))
    return eager, trackers


def with_errors_like(case: Case, few: Case) -> Case:
    """A case whose values are a float32 run's, with at least twice the relative errors of the one with `few` rows.

    Both the candidate's and the eager run's rounding lie between two float32 results; what non-smooth points add at
    this size is in the case's own errors, those of a perturbed run.
    """

    def widened(expected: tolerance.Expected | None, known: tolerance.Expected | None) -> tolerance.Expected | None:
        if expected is None or known is None or not known.norm:
            return expected
        count = math.sqrt(max(expected.reference64.numel(), 1) / max(known.reference64.numel(), 1))
        share = expected.norm / known.norm
        return replace(
            expected,
            error_l2=max(expected.error_l2, 2 * known.error_l2 * share),
            error_max=max(expected.error_max, 2 * known.error_max * share / count),
            spread=None,
        )

    def table(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: widened(expected, theirs.get(name)) for name, expected in ours.items()}

    return replace(
        case,
        outputs=table(case.outputs, few.outputs),
        buffers=table(case.buffers, few.buffers),
        gradients=table(case.gradients, few.gradients),
    )
