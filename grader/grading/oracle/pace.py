"""The time that the reference takes, which decides how often it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from grader.grading.budget import LEAST_SECONDS
from grader.grading.oracle.evaluation import MODEL, MODEL64

PERTURBED_RUNS = 3
"""Runs on perturbed inputs and parameters behind the baseline error. A choice: a branch that half of all runs take is
in the eager run or one of these in 15 of 16 cases."""


@dataclass(frozen=True)
class Pace:
    """The times of the reference's runs of one variant."""

    limit: float
    """Seconds from which a forward and backward are slow."""
    clock: Callable[[], float]
    seconds: dict[str, float] = field(default_factory=dict)
    """The shortest run so far by model."""

    def is_slow(self) -> bool:
        """Whether all runs so far were, on average over those of a case."""
        return self.average(self.seconds[MODEL]) > self.limit

    def average(self, eager_seconds: float) -> float:
        """Seconds of one of a case's runs, of which one is in float64."""
        exact_seconds = self.seconds.get(MODEL64, eager_seconds)
        return ((PERTURBED_RUNS + 1) * eager_seconds + exact_seconds) / (PERTURBED_RUNS + 2)

    def note(self, model: str, started: float, *, runs: int = 1) -> None:
        """Keep the time of runs that have just ended."""
        took = max(LEAST_SECONDS, (self.clock() - started) / runs)
        self.seconds[model] = min(self.seconds.get(model, took), took)
