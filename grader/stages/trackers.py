"""Gathers what several runs of the reference say about each tensor, holding no more than the exact values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from grader.models import Device
from grader.stages import kinks, numerics, passes
from grader.stages.cases import Table
from grader.stages.drawing import PERTURBATION_ULPS, perturbed, perturbed_state
from grader.stages.evaluating import GOLDEN, MODEL, Evaluation, Traits
from grader.stages.parking import is_large, parked

PERTURBED_RUNS, RUNS_OF_LARGE = 3, 1
"""Among millions of elements, each run has as many at a kink as another."""


class _Tracker:
    """One tensor: exact values, and how far the eager runs are from them."""

    def __init__(self, eager: torch.Tensor, exact: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(eager.shape), eager.dtype
        self.real = eager.dtype.is_floating_point or eager.dtype.is_complex
        self.overflows: torch.Tensor | None = None
        if eager.dtype.is_floating_point and not bool(eager.isfinite().all()):
            exact = numerics.within_range(exact.to(eager.device), eager.dtype)
            self.overflows = exact.isfinite() & ~eager.isfinite()
        self.golden = parked(exact) if self.real else eager
        self.error_l2 = self.error_max = 0.0
        self.ambiguous = None if self.real else exact != eager
        self.spread: torch.Tensor | None = None
        self.add(eager)

    def add(self, run: torch.Tensor) -> None:
        if self.ambiguous is not None:
            self.ambiguous |= run != self.golden
            return
        l2, largest = passes.yardstick(run, self.golden)
        self.error_l2, self.error_max = max(self.error_l2, l2), max(self.error_max, largest)

    def spread_by(self, run: torch.Tensor) -> None:
        apart = kinks.apart(run, self.golden)
        self.spread = apart if self.spread is None else torch.maximum(self.spread, apart)


class Trackers:
    """All tensors of a case."""

    def __init__(
        self,
        eager: Evaluation,
        golden: Evaluation | None,
        *,
        has_float64: bool,
        run: Callable[[float], Evaluation] | None = None,
    ) -> None:
        """`run`: another eager run, on inputs and parameters perturbed by so many units of float32's spacing."""
        self._has_float64, self._run = has_float64, run
        exact = golden or eager
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
    ) -> dict[str, numerics.Expected]:
        """By name; `length` gives the longest reduction behind a tensor, `labels` what a message calls it."""
        sizes = [tracker.golden.numel() for trackers in self._tables.values() for tracker in trackers.values()]
        spreads = self._run is not None and max(sizes, default=0) < kinks.MANY
        return {
            name: numerics.Expected(
                name=(labels or {}).get(name, name),
                shape=tracker.shape,
                dtype=tracker.dtype,
                golden=tracker.golden,
                error_l2=tracker.error_l2,
                error_max=tracker.error_max,
                reduction_length=length(tracker.golden),
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
            for _ in range(kinks.RUNS):
                run = self._run(kinks.ULPS)
                for table, trackers in self._tables.items():
                    for name, other in trackers.items():
                        other.spread_by(getattr(run, table)[name])
        assert tracker.spread is not None
        return tracker.spread


def track(
    evaluate: Callable[[str, Sequence[object], Mapping[str, torch.Tensor]], Evaluation],
    traits: Traits,
    inputs: Sequence[object],
    state: Mapping[str, torch.Tensor],
    device: Device,
    *,
    perturbed_runs: int | None = None,
) -> tuple[Evaluation, Trackers]:
    """An eager run, and how far it and some on perturbed inputs and parameters are from the exact values.

    `evaluate` runs one of the reference's models, by name, on inputs and parameters; now, and when a candidate's tensor
    may be wrong at a kink alone.
    """

    def run(ulps: float) -> Evaluation:
        return evaluate(MODEL, perturbed(inputs, device, ulps), perturbed_state(state, device, ulps))

    golden = evaluate(GOLDEN, inputs, state) if traits.has_float64 else None
    eager = evaluate(MODEL, inputs, state)
    perturbs = traits.has_float64
    trackers = Trackers(eager, golden, has_float64=traits.has_float64, run=run if perturbs else None)
    if perturbs:
        if perturbed_runs is None:
            perturbed_runs = RUNS_OF_LARGE if any(map(is_large, inputs)) else PERTURBED_RUNS
        for _ in range(perturbed_runs):
            trackers.add(run(PERTURBATION_ULPS))
    return eager, trackers
