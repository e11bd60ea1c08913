"""Decides when the rounds of a timing are enough."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from grader.grading.timing.clocks import Samples
from grader.grading.timing.statistics import (
    FEWEST_ROUNDS,
    HOPELESS,
    MANY_ROUNDS,
    MIN_ROUNDS,
    disturbed,
    may_be_placement,
    speedup,
)
from grader.machine.backends import backend
from grader.verdict.models import Device


@dataclass(frozen=True)
class RoundLimits:
    """Limits of the rounds of timing: their number and their time."""

    min_rounds: float
    max_rounds: int
    seconds: float
    """After this long, warm-up included, MIN_ROUNDS are enough, or FEWEST_ROUNDS whose intervals are narrow."""
    stops_when_hopeless: bool = False
    """Ends after one round of a HOPELESS candidate, whose calls would take most of a machine's time. If it is far
    beyond that, and stays so, its very first call counts too."""
    pace_tolerance: float = 0.005
    """Relative difference of both processes' pace that is accepted where launches show."""
    short_ms: float = 0.03
    """Milliseconds: shorter kernels have launch costs that show. In one process a launch costs a GPU up to 0.15 us more
    than in another, which makes half of the margin."""

    @property
    def longest(self) -> float:
        """Seconds after which a difference that pages may make has no further rounds either. A choice."""
        return 3 * self.seconds


QUICK = RoundLimits(
    min_rounds=FEWEST_ROUNDS, max_rounds=5, seconds=0.8, stops_when_hopeless=True, pace_tolerance=0.03, short_ms=0.01
)
"""The limits with `quick`. A grading has seconds of its own (`Budget`): these are for tests and benchmarks.

A choice: the rounds take about as long as the checks before them."""


def thorough(device: Device) -> RoundLimits:
    """The limits without `quick`; a grading has seconds of its own, and these are the selftest's."""
    return RoundLimits(min_rounds=MANY_ROUNDS, max_rounds=backend(device).timing.most_rounds, seconds=20.0)


def are_enough(samples: Mapping[str, Samples], limits: RoundLimits, seconds: float) -> bool:
    """Whether no further round is needed, so many seconds after the timing began."""
    if not samples:
        return False
    count, precise = count_of(samples), are_precise(samples)
    ranking = samples.get("total") or samples["forward"]
    _, low, high = speedup(ranking.reported())
    if limits.stops_when_hopeless and high < HOPELESS and not disturbed(low, high):
        return True
    if seconds < limits.longest and any(_may_be_placement(series) for series in samples.values()):
        return False
    if seconds > limits.seconds and count >= (FEWEST_ROUNDS if precise else MIN_ROUNDS):
        return True
    return precise and count >= limits.min_rounds


def count_of(samples: Mapping[str, Samples]) -> float:
    """Rounds so far; half a round is a pair."""
    return max((series.count / 2 for series in samples.values()), default=0.0)


def are_precise(samples: Mapping[str, Samples]) -> bool:
    """Whether the intervals of all figures are narrow enough."""
    return all(
        speedup(series.reported()).half_width <= backend(series.device).timing.resolution.half_width
        for series in samples.values()
    )


def _may_be_placement(samples: Samples) -> bool:
    rounds = samples.reported()
    found, reference_ms = speedup(rounds), statistics.median(ms for r in rounds for ms in r.reference_ms)
    count = samples.count / 2
    return may_be_placement(found.ci_low, found.ci_high, count, samples.device, reference_ms, samples.bias)
