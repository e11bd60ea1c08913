"""Gathers what several runs of the reference say about each tensor, holding no more than the exact values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch

from grader.stages import numerics

Table = Literal["outputs", "gradients", "buffers"]

LARGE_BYTES = 64 << 20
"""Tensors from this size on wait in pinned host memory: at full size a case is several GB, and the device's memory is
the candidate's."""


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
        l2, largest = numerics.yardstick(run, self.golden)
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


def is_large(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() * value.element_size() >= LARGE_BYTES


def parked(value: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Where a tensor waits until it is needed: a large one of a device in pinned host memory, as `dtype` where that is
    given, any other where and as it is."""
    if is_large(value) and value.is_cuda:
        host = torch.empty(value.shape, dtype=dtype or value.dtype, pin_memory=True)
        return host.copy_(value)
    return value
