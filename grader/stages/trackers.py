"""Gathers what several runs of the reference say about each tensor, holding no more than the exact values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch

from grader.models import Device
from grader.stages import numerics, passes
from grader.stages.drawing import PERTURBATION_ULPS, perturbed, perturbed_state
from grader.stages.first_look import GOLDEN, MODEL, Traits
from grader.stages.parking import parked

PERTURBED_RUNS = 3

Table = Literal["outputs", "gradients", "buffers"]


class Evaluation(NamedTuple):
    """Sealed tensors of one run of the reference."""

    outputs: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor | None]
    buffers: Mapping[str, torch.Tensor]


class _Tracker:
    """One tensor: exact values, and how far the eager runs are from them."""

    def __init__(self, eager: torch.Tensor, exact: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(eager.shape), eager.dtype
        self.real = eager.dtype.is_floating_point or eager.dtype.is_complex
        self.golden = parked(exact if self.real else eager)
        self.error_l2 = self.error_max = 0.0
        self.ambiguous = None if self.real else exact != eager
        self.add(eager)

    def add(self, run: torch.Tensor) -> None:
        if self.ambiguous is not None:
            self.ambiguous |= run != self.golden
            return
        l2, largest = passes.yardstick(run, self.golden)
        self.error_l2, self.error_max = max(self.error_l2, l2), max(self.error_max, largest)


class Trackers:
    """All tensors of a case."""

    def __init__(self, eager: Evaluation, golden: Evaluation | None, *, has_float64: bool) -> None:
        self._has_float64 = has_float64
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
                has_float64=self._has_float64,
            )
            for name, tracker in self._tables[table].items()
        }


def track(
    evaluate: Callable[[str, Sequence[object], Mapping[str, torch.Tensor]], Evaluation],
    traits: Traits,
    inputs: Sequence[object],
    state: Mapping[str, torch.Tensor],
    device: Device,
    *,
    runs: int = PERTURBED_RUNS,
    ulps: float = PERTURBATION_ULPS,
) -> tuple[Evaluation, Trackers]:
    """An eager run, and how far it and so many on perturbed inputs and parameters are from the exact values.

    `evaluate` runs one of the reference's models, by name, on inputs and parameters.
    """
    golden = evaluate(GOLDEN, inputs, state) if traits.has_float64 else None
    eager = evaluate(MODEL, inputs, state)
    trackers = Trackers(eager, golden, has_float64=traits.has_float64)
    if traits.has_float64 and not traits.stochastic:
        for _ in range(runs):
            trackers.add(evaluate(MODEL, perturbed(inputs, device, ulps), perturbed_state(state, device, ulps)))
    return eager, trackers
