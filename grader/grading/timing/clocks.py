"""What two clocks say about the calls of one figure, and which of them is given.

The worker's own clock is a claim. The referee sees how long it took from releasing the first input to sealing the last
output, on a GPU by that device's own time (remote/timeline.py); the reference, which has the same overheads and whose
claims are true, shows how much of that is overhead, and what is left is the referee's figure. A claim is given where it
is no shorter than that, but for AGREEMENT and noise; the lower end of the interval, which ranks, is the lower of both
clocks' anyway.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from grader.grading.timing.statistics import Round, speedup, verdict_of
from grader.verdict.models import Device, PhaseTiming

AGREEMENT = 0.05
"""A claim shorter than the referee's figure by more than this share of it is not given, noise apart. A judgement, like
LEAST_SHARE: benchmarks/clock_agreement.py tells what it costs honest submissions on a machine."""
LEAST_SHARE = {Device.CPU: 0.1, Device.CUDA: 0.01}
"""Of the overhead: a shorter time is below what a bracket can tell, however steady a few samples look."""
STANDARD_ERRORS = 3.0
"""Of the difference between both clocks: what is no further apart may be noise. More for few samples."""
STEADY_MS = {Device.CPU: 0.0, Device.CUDA: 0.002}
"""By so much two processes' overheads may differ in one bracket, steadily, however many samples there are. On an H200,
in brackets of 0.4 ms, the farthest of twenty honest candidates was 1.7 us from the reference, most less than 0.9 us."""
NOISE_SHARE = 0.25
"""Of the claim: neither excuses more, so that nobody gains more by a claim that drowns in it."""


@dataclass(frozen=True)
class Time:
    """Milliseconds of one call's part, or the sum over several calls."""

    claim: float
    bracket: float
    brackets: int = 1
    """How many `bracket` adds up."""

    def __add__(self, other: Time) -> Time:
        return Time(self.claim + other.claim, self.bracket + other.bracket, self.brackets + other.brackets)

    @property
    def unexplained(self) -> float:
        return self.bracket - self.claim


@dataclass
class Samples:
    """Of one figure: pairs of (reference, candidate) by round, two a round, each per call."""

    device: Device
    rounds: list[tuple[tuple[Time, Time], tuple[Time, Time]]] = field(default_factory=list)

    def claims(self) -> list[Round]:
        return [self._round([(r.claim, c.claim) for r, c in pairs]) for pairs in self.rounds]

    def referees(self) -> list[Round]:
        """By the referee's clock: no shorter than is claimed, or than that clock can tell.

        The reference too, whose claims are true: else what disturbs brackets would count against one side alone.
        """
        overhead, least = self.overhead(), self.resolution()

        def seen(of: Time) -> float:
            return max(of.claim, of.bracket - overhead, least)

        return [self._round([(seen(r), seen(c)) for r, c in pairs]) for pairs in self.rounds]

    def overhead(self) -> float:
        """What a bracket holds beside the call: median over the reference, whose claims are true."""
        return statistics.median(self._overheads())

    def resolution(self) -> float:
        """What the referee's clock cannot tell from nothing: its median deviation, several times, and never none."""
        return max(3 * self._deviation(), LEAST_SHARE[self.device] * self.overhead(), 1e-6)

    def excess(self) -> float:
        """By how much the referee saw more of the candidate than was claimed; around 0 where claims are true."""
        return statistics.median(c.unexplained for pairs in self.rounds for _, c in pairs) - self.overhead()

    def steady(self) -> float:
        """What two processes' overheads may differ by."""
        (first, _), _ = self.rounds[0]
        return STEADY_MS[self.device] * first.brackets

    def noise(self) -> float:
        """STANDARD_ERRORS of the excess, a difference of two medians: 1.25 deviations over the root of their number,
        for the normal distribution, whose deviation is 1.48 median deviations.

        Of few samples the deviation itself is known badly: hence Student's t (Abramowitz and Stegun 26.7.5, first
        order), with one degree of freedom less than there are samples.
        """
        count = 2 * len(self.rounds)
        errors = STANDARD_ERRORS + (STANDARD_ERRORS**3 + STANDARD_ERRORS) / (4 * (count - 1))
        return errors * 1.2533 * 1.4826 * self._deviation() * math.sqrt(2 / count)

    def _deviation(self) -> float:
        overhead = self.overhead()
        return statistics.median(abs(value - overhead) for value in self._overheads())

    def _overheads(self) -> list[float]:
        return [reference.unexplained for pairs in self.rounds for reference, _ in pairs]

    @staticmethod
    def _round(values: Sequence[tuple[float, float]]) -> Round:
        (r1, c1), (r2, c2) = values
        return Round((max(r1, 1e-6), max(r2, 1e-6)), (max(c1, 1e-6), max(c2, 1e-6)))


def timing_of(samples: Samples) -> tuple[PhaseTiming, bool]:
    """The figure, and whether the claim is beyond what noise explains."""
    device, claims, referees = samples.device, samples.claims(), samples.referees()
    claimed = statistics.median(sum(r.candidate_ms) / 2 for r in claims)
    excess = samples.excess()
    excused = min(max(samples.noise(), samples.steady()), NOISE_SHARE * claimed)
    if excess > max(excused, AGREEMENT * (claimed + excess)):
        timing = _phase(referees, "referee", device)
        if max(timing.candidate_ms, timing.reference_ms) <= samples.resolution():  # equal because neither can be told
            timing = timing.model_copy(update={"verdict": "inconclusive"})
        return timing, excess > 2 * samples.resolution()
    timing, low = _phase(claims, "worker", device), speedup(referees).ci_low
    if low < timing.ci_low:
        verdict = verdict_of(low, timing.ci_high, timing.rounds, device, timing.reference_ms)
        timing = timing.model_copy(update={"ci_low": low, "verdict": verdict})
    return timing, False


def _phase(rounds: Sequence[Round], clock: Literal["worker", "referee"], device: Device) -> PhaseTiming:
    figures = speedup(rounds)
    candidate_ms = [value for r in rounds for value in r.candidate_ms]
    reference_ms = [value for r in rounds for value in r.reference_ms]
    typical_ms = statistics.median(reference_ms)
    return PhaseTiming(
        candidate_ms=statistics.median(candidate_ms),
        reference_ms=typical_ms,
        speedup=figures.speedup,
        ci_low=figures.ci_low,
        ci_high=figures.ci_high,
        verdict=verdict_of(figures.ci_low, figures.ci_high, len(rounds), device, typical_ms),
        rounds=len(rounds),
        candidate_samples_ms=tuple(map(_rounded, candidate_ms)),
        reference_samples_ms=tuple(map(_rounded, reference_ms)),
        clock=clock,
    )


def _rounded(value: float) -> float:
    """Six significant digits: no clock tells more, and a verdict keeps hundreds of these."""
    return float(f"{value:.6g}")
