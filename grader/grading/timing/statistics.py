"""From rounds of paired times to a speedup with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from grader.verdict.models import Device

RESAMPLES = 2000
TRIMMED = 0.2
"""Of the ratios, at either end. What disturbs a machine holds up few calls; of the others a mean tells more than a
median where they are of two kinds: on an H200, one process's calls of 16 us take 15.1 or 15.9 us."""
LEAST_PAIRS = 6
"""Below it nothing is trimmed away that one disturbed call would be a large part of: no difference is called, but
HOPELESS ones."""
HOPELESS = 1 / 3
"""Below this, a few pairs are enough: what disturbs a machine does not make one process three times slower than
another, call by call and in turn."""
BEYOND_HOPE = HOPELESS / 3
"""What is loaded and allocated in a first call makes no such difference, where the next one takes as long."""
STUDENTS_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""97.5% quantiles by degrees of freedom: Abramowitz and Stegun, table 26.10. Of more, `students_t` is right to 0.2%."""
NORMAL = 1.959964
"""The normal distribution's."""
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
"""Where a process's memory happens to lie is worth some percent on a CPU. On an H200, processes that are like each
other (`Resources.align`) differ by up to 0.1 us in a call of 16 us in two kernels, others by 0.4 us and more, steadily,
and by 0.2% from 0.3 ms on; 0.2 us of noise come on top."""


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
    """exp(trimmed mean of log ratios), and a 95% interval: Student's t times the bootstrap's standard error over pairs.

    Degrees of freedom are those of a trimmed mean (Tukey and McLaughlin, Sankhya A 25, 1963). The seed is fixed: the
    same samples give the same interval.
    """
    ratios = torch.tensor([ratio for r in rounds for ratio in r.log_ratios], dtype=torch.float64)
    source, count = torch.Generator().manual_seed(0), len(ratios)
    drawn = ratios[torch.randint(count, (RESAMPLES, count), generator=source)]
    error = float(_trimmed_means(drawn).std()) * math.sqrt(count / (count - 1))
    middle = float(_trimmed_means(ratios[None]))
    half = students_t(count - 2 * _trimmed_of(count) - 1) * error
    return Speedup(*map(math.exp, (middle, middle - half, middle + half)))


def students_t(degrees: int) -> float:
    """97.5% quantile: Abramowitz and Stegun 26.7.5, to the third order."""
    z = NORMAL
    orders = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return STUDENTS_T.get(degrees) or z + sum(g / degrees**n for n, g in enumerate(orders, 1))


def _trimmed_means(rows: torch.Tensor) -> torch.Tensor:
    count = rows.shape[1]
    trimmed = _trimmed_of(count)
    return rows.sort(1).values[:, trimmed : count - trimmed].mean(1)


def _trimmed_of(count: int) -> int:
    """At either end."""
    return int(TRIMMED * count)


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
