"""Computes a speedup with its interval, and what it says, from rounds of paired times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import torch

from grader.machine.backends import backend
from grader.verdict.models import Device

RESAMPLES = 2000
"""Bootstrap resamples: they estimate the standard error to 1.6%, 1 / sqrt(2 * RESAMPLES)."""
TRIMMED = 0.2
"""Share of the log ratios dropped at either end. Disturbances delay few calls. For the others a mean tells more than a
median where calls are of two kinds: on an H200, calls of 16 us in one process take 15.1 or 15.9 us."""
FEWEST_ROUNDS = 1.5
"""Rounds, of two pairs each, that are enough if they agree: three pairs, none of them trimmed. Student's t for three is
4.3, so they agree only if they differ by little."""
MIN_ROUNDS = 2
"""Rounds that are enough even if they disagree: four pairs, whose Student's t is 3.2. With fewer, a wide interval calls
no difference but HOPELESS ones, and rounds go on however late it is."""
PLACED_ROUNDS = 5
"""Rounds below which each side may have had pages of one kind all along, such as the slow ones of two."""
MANY_ROUNDS = 7
"""Rounds of a thorough grading at least. Fewer are a short look at one pair of processes, whose steady difference the
interval cannot contain: it is added to the margin."""
HOPELESS = 1 / 3
"""Speedup below which a few pairs are enough: disturbances do not make one process three times slower than another,
call by call and in turn."""
FIRST_CALL_FACTOR = 3
"""A first call, which loads and allocates, takes less than this many times what later calls take."""
Outcome = Literal["faster", "slower", "same", "inconclusive"]


class Round(NamedTuple):
    """One ABBA round: two pairs in mirrored order, so that a steady drift cancels.

    The last round may have one pair.
    """

    reference_ms: tuple[float, ...]
    candidate_ms: tuple[float, ...]

    @property
    def log_ratios(self) -> tuple[float, ...]:
        """log(reference / candidate) of each pair."""
        return tuple(math.log(r / c) for r, c in zip(self.reference_ms, self.candidate_ms, strict=True))


class Estimate(NamedTuple):
    """A speedup with its 95% interval."""

    speedup: float
    ci_low: float
    ci_high: float

    @property
    def half_width(self) -> float:
        """Half width of the interval, relative to the speedup."""
        return (self.ci_high - self.ci_low) / (2 * self.speedup)


def speedup(rounds: Sequence[Round]) -> Estimate:
    """exp(trimmed mean of log ratios), with a 95% interval.

    The interval is Student's t times the bootstrap's standard error over pairs, with the degrees of freedom of a
    trimmed mean (Tukey and McLaughlin, Sankhya A 25, 1963). The seed is fixed, so that the same samples give the same
    interval.
    """
    ratios = torch.tensor([ratio for r in rounds for ratio in r.log_ratios], dtype=torch.float64)
    source, count = torch.Generator().manual_seed(0), len(ratios)
    drawn = ratios[torch.randint(count, (RESAMPLES, count), generator=source)]
    error = float(_trimmed_means(drawn).std()) * math.sqrt(count / (count - 1))
    middle = float(_trimmed_means(ratios[None]))
    half = students_t(count - 2 * _trimmed_count(count) - 1) * error
    return Estimate(*map(math.exp, (middle, middle - half, middle + half)))


def students_t(degrees: int) -> float:
    """97.5% quantile of Student's t.

    From 5 degrees of freedom by Abramowitz and Stegun 26.7.5 to the third order, which is right to 0.2%; below by
    their table 26.10.
    """
    z = NormalDist().inv_cdf(0.975)
    orders = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    few = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
    return few.get(degrees) or z + sum(g / degrees**n for n, g in enumerate(orders, 1))


class Bias(NamedTuple):
    """Causes that may set two processes of equal programs apart in all samples."""

    launches: bool = False
    """The times contain those of launches."""
    pace_apart: float = 0.0
    """Relative difference of the paces at which the GPU takes up their work, where a call is many short kernels."""


UNBIASED = Bias()


def outcome_of(
    low: float,
    high: float,
    rounds: float,
    device: Device,
    reference_ms: float,
    bias: Bias = UNBIASED,
) -> Outcome:
    """The outcome of an interval over so many rounds, for a reference that takes `reference_ms` a call.

    A difference counts where it exceeds the margin and what may set two processes of equal programs apart.
    """
    resolution = backend(device).timing.resolution
    margin = resolution.margin_at(reference_ms)
    spread = (resolution.launch_spread if bias.launches else resolution.process_spread) + bias.pace_apart
    if rounds < PLACED_ROUNDS:
        spread = max(spread, resolution.placement_spread)
    different = margin + (spread if rounds < MANY_ROUNDS else 0.0)
    precise = (high - low) / (high + low) <= resolution.half_width
    if rounds < PLACED_ROUNDS and disturbed(low, high):
        return "inconclusive"
    if rounds < (FEWEST_ROUNDS if precise else MIN_ROUNDS):
        return "slower" if high < HOPELESS else "inconclusive"
    if low > 1 + different:
        return "faster"
    if high < 1 / (1 + different):
        return "slower"
    return "same" if low >= 1 / (1 + margin) and high <= 1 + margin else "inconclusive"


def disturbed(low: float, high: float) -> bool:
    """Whether an interval spans more than a factor of two, as other programs' load may make it.

    Load may meet one side in all of a few pairs, but not each time alike. Far beyond HOPELESS, one call of a pair may
    be a first one.
    """
    return high > 2 * low and high > HOPELESS / FIRST_CALL_FACTOR


def may_be_placement(
    low: float, high: float, rounds: float, device: Device, reference_ms: float, bias: Bias = UNBIASED
) -> bool:
    """Whether this interval would be called a difference after PLACED_ROUNDS, and is not yet."""
    now, then = (outcome_of(low, high, count, device, reference_ms, bias) for count in (rounds, PLACED_ROUNDS))
    return rounds < PLACED_ROUNDS and now != then and then in ("faster", "slower")


def _trimmed_means(rows: torch.Tensor) -> torch.Tensor:
    count = rows.shape[1]
    trimmed = _trimmed_count(count)
    return rows.sort(1).values[:, trimmed : count - trimmed].mean(1)


def _trimmed_count(count: int) -> int:
    """Values dropped at either end."""
    return int(TRIMMED * count)
