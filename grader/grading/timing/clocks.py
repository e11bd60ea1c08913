"""Two clocks for the calls of one figure, and which of them the verdict shows.

The worker's own clock is what it reports. The referee's clock measures the interval from releasing the first input to
sealing the last output, on a GPU in that device's own time (`grader.executor.gpu_timeline`). The reference has the
same overhead and reports the truth, so it shows how much of an interval is overhead. The rest is the referee's time.

A reported time counts unless it is shorter than the referee's by more than AGREEMENT and noise. The lower end of the
speedup's interval, which ranks, is the lower of both clocks' in any case.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from grader.grading.timing.statistics import UNBIASED, Bias, Outcome, Round, outcome_of, speedup
from grader.machine.backends import backend
from grader.verdict.models import Device
from grader.verdict.stages import FigureTiming

AGREEMENT = 0.05
"""Share of the referee's time. A reported time that is shorter by more, noise apart, is replaced by the referee's.
A choice: benchmarks/clock_agreement.py measures what it costs honest submissions on a machine."""
STANDARD_ERRORS = 3.0
"""Standard errors of the difference between both clocks that noise may explain; more for few samples."""
NOISE_SHARE = 0.25
"""Share of the reported time: noise and process overhead excuse no more, so that a report that drowns in noise gains
no more than this. A choice."""


@dataclass(frozen=True)
class Time:
    """Time of one call's part, or the sum over several, in milliseconds."""

    reported: float
    """By the worker's own clock."""
    interval: float
    """By the referee's clock, overhead included."""
    intervals: int = 1
    """How many intervals `interval` adds up."""
    waited: float = 0.0
    """How long threads waited for a core in the interval, added up."""

    def __add__(self, other: Time) -> Time:
        return Time(
            self.reported + other.reported,
            self.interval + other.interval,
            self.intervals + other.intervals,
            self.waited + other.waited,
        )

    @property
    def unexplained(self) -> float:
        """The part of the referee's interval that the reported time does not explain."""
        return self.interval - self.reported


Pairs = tuple[tuple[Time, Time], ...]
"""The (reference, candidate) pairs of one round: two, or one if the timing ended there."""


@dataclass
class Samples:
    """Samples of one figure: pairs of (reference, candidate) by round, in milliseconds per call."""

    device: Device
    rounds: list[Pairs] = field(default_factory=list)
    bias: Bias = UNBIASED

    @property
    def count(self) -> int:
        """The number of pairs."""
        return sum(map(len, self.rounds))

    def reported(self) -> list[Round]:
        """Rounds by the workers' clocks."""
        return [self._round([(r.reported, c.reported) for r, c in pairs]) for pairs in self.rounds]

    def refereed(self) -> list[Round]:
        """Rounds by the referee's clock: at least the reported time, and at least what that clock resolves.

        The reference is treated alike, though it reports the truth: else disturbances would count against one side.
        """
        overhead, least = self.overhead(), self.resolution()

        def measured(time: Time) -> float:
            return max(time.reported, time.interval - overhead, least)

        return [self._round([(measured(r), measured(c)) for r, c in pairs]) for pairs in self.rounds]

    def overhead(self) -> float:
        """The overhead of an interval beside its call: median over the reference, which reports the truth."""
        return statistics.median(self._overheads())

    def resolution(self) -> float:
        """The shortest time that the referee's clock resolves: a multiple of its median deviation, never 0."""
        return max(3 * self._deviation(), backend(self.device).timing.least_share * self.overhead(), 1e-6)

    def excess(self) -> float:
        """Time of the candidate that it does not report, by the referee's clock; near 0 for true reports."""
        return statistics.median(self._candidate_overheads()) - self.overhead()

    def accuse(self) -> bool:
        """Whether the excess is too large and too steady for an honest process.

        On a CPU, honest overheads differ by up to a third: an output that is not contiguous takes longer to copy out.
        With launches, the host's work behind a call is overhead too: 0.5 to 5 ms in equal calls of 14 ms on an H200.
        """
        if self.bias.launches:
            honest = NOISE_SHARE * self.typical()
        else:
            honest = self.overhead() / 2 if backend(self.device).on_host else 0.0
        return self.excess() > max(2 * self.resolution(), honest) and self.exceeds_throughout()

    def typical(self) -> float:
        """The time that the candidate reports: median over rounds."""
        return statistics.median(statistics.fmean(of_round.candidate_ms) for of_round in self.reported())

    def exceeds_throughout(self) -> bool:
        """Whether nine in ten samples of the candidate show an excess.

        A false timer reports too little in every call. Other work on the machine lengthens some intervals, and of few
        samples easily half of one side's: under load the overhead's 95th percentile is 3 to 6 times its median.
        """
        overheads = sorted(self._candidate_overheads())
        return overheads[len(overheads) // 10] > self.overhead()

    def without_waits(self) -> Samples:
        """The samples without the time that threads waited for a core.

        On a busy machine, processes that wake their threads at other moments wait for very different times. A false
        timer that hides work hides none of this; a candidate that waits on purpose is only spared the accusation.
        """

        def running(time: Time) -> Time:
            return replace(time, interval=time.interval - time.waited)

        pairs = [tuple((running(r), running(c)) for r, c in of_round) for of_round in self.rounds]
        return replace(self, rounds=pairs)

    def steady(self) -> float:
        """The difference that may be between two processes' overheads."""
        first, _ = self.rounds[0][0]
        return backend(self.device).timing.steady_ms * first.intervals

    def noise(self) -> float:
        """STANDARD_ERRORS of the excess, which is a difference of two medians.

        The error of a median is 1.25 deviations over the root of the number of samples, for the normal distribution,
        whose deviation is 1.48 median deviations. Few samples estimate the deviation badly: hence Student's t
        (Abramowitz and Stegun 26.7.5, first order) with one degree of freedom less than there are samples.
        """
        count = self.count
        errors = STANDARD_ERRORS + (STANDARD_ERRORS**3 + STANDARD_ERRORS) / (4 * (count - 1))
        return errors * 1.2533 * 1.4826 * self._deviation() * math.sqrt(2 / count)

    def _deviation(self) -> float:
        overhead = self.overhead()
        return statistics.median(abs(value - overhead) for value in self._overheads())

    def _overheads(self) -> list[float]:
        return [reference.unexplained for pairs in self.rounds for reference, _ in pairs]

    def _candidate_overheads(self) -> list[float]:
        return [candidate.unexplained for pairs in self.rounds for _, candidate in pairs]

    @staticmethod
    def _round(values: Sequence[tuple[float, float]]) -> Round:
        reference, candidate = zip(*values, strict=True)
        return Round(tuple(max(ms, 1e-6) for ms in reference), tuple(max(ms, 1e-6) for ms in candidate))


def timing_of(samples: Samples) -> tuple[FigureTiming, bool]:
    """The figure, and whether the reported times are shorter than the referee's clock allows."""
    reported, refereed = samples.reported(), samples.refereed()
    typical, excess = samples.typical(), samples.excess()
    excused = min(max(samples.noise(), samples.steady()), NOISE_SHARE * typical)
    if excess > max(excused, AGREEMENT * (typical + excess)):
        timing = _phase(refereed, "referee", samples)
        if max(timing.candidate_ms, timing.reference_ms) <= samples.resolution():  # equal because both are unresolved
            timing = timing.model_copy(update={"verdict": "inconclusive"})
        return timing, samples.accuse() and samples.without_waits().accuse()
    timing, low = _phase(reported, "worker", samples), speedup(refereed).ci_low
    if low < timing.ci_low:
        verdict = _outcome(samples, low, timing.ci_high, timing.reference_ms)
        timing = timing.model_copy(update={"ci_low": low, "verdict": verdict})
    return timing, False


def _outcome(samples: Samples, low: float, high: float, reference_ms: float) -> Outcome:
    return outcome_of(low, high, samples.count / 2, samples.device, reference_ms, samples.bias)


def _phase(rounds: Sequence[Round], clock: Literal["worker", "referee"], samples: Samples) -> FigureTiming:
    figures = speedup(rounds)
    candidate_ms = [value for r in rounds for value in r.candidate_ms]
    reference_ms = [value for r in rounds for value in r.reference_ms]
    typical_ms = statistics.median(reference_ms)
    return FigureTiming(
        candidate_ms=statistics.median(candidate_ms),
        reference_ms=typical_ms,
        speedup=figures.speedup,
        ci_low=figures.ci_low,
        ci_high=figures.ci_high,
        verdict=_outcome(samples, figures.ci_low, figures.ci_high, typical_ms),
        rounds=len(rounds),
        candidate_samples_ms=tuple(map(_rounded, candidate_ms)),
        reference_samples_ms=tuple(map(_rounded, reference_ms)),
        clock=clock,
    )


def _rounded(value: float) -> float:
    """Six significant digits: no clock resolves more, and a verdict keeps hundreds of these."""
    return float(f"{value:.6g}")
