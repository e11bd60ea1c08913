"""From rounds of paired times to a speedup with an interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from grader.models import Device

RESAMPLES = 2000
CONFIDENCE = 0.95
LEAST_PAIRS = 6
"""A bootstrap interval of n pairs is at most from the least to the largest ratio, which holds the true median with a
probability of 1 - 2 / 2^n: below 6 that is less than 95%. Of fewer the interval supposes normal noise, and no
difference is called but of HOPELESS ones."""
HOPELESS = 1 / 3
"""Below this, a few pairs are enough: what disturbs a machine does not make one process three times slower than
another, call by call and in turn."""
BEYOND_HOPE = HOPELESS / 3
"""What is loaded and allocated in a first call makes no such difference, where the next one takes as long."""
STUDENTS_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""97.5% quantiles by degrees of freedom: Abramowitz and Stegun, table 26.10."""
Verdict = Literal["faster", "slower", "same", "inconclusive"]


@dataclass(frozen=True)
class Precision:
    """What can be told on a device, where two processes that run the same program differ by a little, steadily."""

    margin: float
    """A smaller difference is called none."""
    half_width: float
    """Of the interval, relative to the speedup: closer is not asked for."""
    least_ms: float = 0.0
    """Nor is a difference by less time called one, unless it is more than `most`."""
    most: float = 1.0
    """Relative."""

    def margin_at(self, ms: float) -> float:
        """Relative, for a call that takes so long."""
        return max(self.margin, min(self.most, self.least_ms / max(ms, 1e-9)))


PRECISIONS = {
    Device.CUDA: Precision(margin=0.01, half_width=0.005, least_ms=0.0008, most=0.025),
    Device.CPU: Precision(margin=0.05, half_width=0.02),
}
"""Where a process's memory happens to lie is worth some percent on a CPU. On an H200, processes in which launches cost
the same differ by up to 0.3 us in a call of 16 us in two kernels, those in which they do not by 0.4 us and more,
steadily, and by 0.2% from 0.3 ms on."""


class Round(NamedTuple):
    """One ABBA round: two pairs, in mirrored order, so that a steady drift cancels."""

    reference_ms: tuple[float, float]
    candidate_ms: tuple[float, float]

    @property
    def log_ratios(self) -> tuple[float, float]:
        """log(reference / candidate) of each pair."""
        first, second = (math.log(r / c) for r, c in zip(self.reference_ms, self.candidate_ms, strict=True))
        return first, second


class Speedup(NamedTuple):
    speedup: float
    ci_low: float
    ci_high: float

    @property
    def half_width(self) -> float:
        """Of the interval, relative to the speedup."""
        return (self.ci_high - self.ci_low) / (2 * self.speedup)


def speedup(rounds: Sequence[Round]) -> Speedup:
    """exp(median of log ratios) with a percentile bootstrap interval over pairs; of fewer than LEAST_PAIRS, Student's.

    The seed is fixed: the same samples give the same interval.
    """
    ratios = [ratio for r in rounds for ratio in r.log_ratios]
    if len(ratios) < LEAST_PAIRS:
        half = STUDENTS_T[len(ratios) - 1] * statistics.stdev(ratios) / math.sqrt(len(ratios))
        middle = statistics.median(ratios)
        return Speedup(*map(math.exp, (middle, middle - half, middle + half)))
    source, count = torch.Generator().manual_seed(0), len(ratios)
    drawn = torch.tensor(ratios, dtype=torch.float64)[torch.randint(count, (RESAMPLES, count), generator=source)]
    medians = drawn.sort(1).values[:, [(count - 1) // 2, count // 2]].mean(1).sort().values
    tail = (1 - CONFIDENCE) / 2
    low, high = (math.exp(medians[int(q * (RESAMPLES - 1))]) for q in (tail, 1 - tail))
    return Speedup(math.exp(statistics.median(ratios)), low, high)


def verdict_of(low: float, high: float, rounds: int, device: Device, reference_ms: float) -> Verdict:
    """What an interval over so many rounds says, beside what a call of the reference takes."""
    margin = PRECISIONS[device].margin_at(reference_ms)
    least, most = 1 / (1 + margin), 1 + margin
    if 2 * rounds < LEAST_PAIRS:
        return "slower" if high < HOPELESS else "inconclusive"
    if low > most:
        return "faster"
    if high < least:
        return "slower"
    return "same" if low >= least and high <= most else "inconclusive"
