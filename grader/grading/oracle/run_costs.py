"""The time and memory that the reference's runs take, and the runs that are affordable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from grader.grading.budget import LEAST_SECONDS, Budget, Stopwatch
from grader.grading.compare import nonsmooth
from grader.grading.oracle.case import Case, nbytes_of
from grader.grading.oracle.evaluation import MODEL, MODEL64, Evaluation, Pass
from grader.grading.oracle.fewer_rows import ROWS, WHOLE
from grader.grading.oracle.models import ReferenceModels
from grader.grading.oracle.perturbed_runs import PERTURBED_RUNS, Again
from grader.machine.backends import backend


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


class RunCosts:
    """The seconds of the reference's runs by variant and model, and the memory of float64 runs."""

    def __init__(self, models: ReferenceModels, budget: Budget) -> None:
        self.spares_memory = False
        """Whether memory is short: no float64 run at full size."""
        self.unaffordable: set[str] = set()
        """Variants whose float64 runs did not fit into the device's memory or the time."""
        self.waits_for_float64 = False
        """Whether a float64 run at full size may take as long as a grading should."""
        self.float64_is_slow = False
        """Whether only time forbade the last float64 run at full size, and waiting would allow it."""
        self._models, self._budget = models, budget
        self._seconds: dict[str, dict[str, float]] = {}
        self._steady: dict[str, float] = {}
        """Seconds of the shortest of some further calls, of variants that seemed slow."""

    def pace(self, variant: str) -> Pace:
        """The pace of a variant's runs, which keeps their seconds here."""
        limit, clock = self._budget.product_seconds, self._models.process.clock
        return Pace(limit, clock, self._seconds.setdefault(variant, {}))

    def seconds(self, variant: str, model: str) -> float:
        """Seconds of a forward and backward; 0 where this model was not run by itself."""
        return self._seconds.get(variant, {}).get(model, 0.0)

    def is_slow(self, case: Case) -> bool:
        """Whether a pass of this size takes so long that it has one draw and one perturbed run."""
        return self.seconds_of(case) > self._budget.product_seconds

    def seconds_of(self, case: Case) -> float:
        """Seconds of a forward and backward of this size, on average over the runs of a case."""
        pace, variant = self.pace(case.variant), case.variant
        first = pace.seconds.get(MODEL, 0.0)
        if pace.average(first) <= pace.limit:
            return pace.average(first)
        if variant not in self._steady:
            watch, again = Stopwatch(pace.clock), partial(self._models.ask, case, [Pass.of(case)])
            self._steady[variant] = watch.steady(variant, pace.limit, lambda: next(again()))
        return pace.average(min(first, self._steady[variant]))

    def affords_float64(self, eager: Evaluation) -> bool:
        """Whether a float64 run at full size fits into the time of a product and into a GPU's free memory.

        If not, the eager run stands in (`with_errors_like`). Its time is estimated from the variant with fewer rows,
        and is no question without one; its memory is estimated as twice the peak of the eager run.
        """
        fits, few, seconds = self._fits_in_float64(eager), self.seconds(ROWS, MODEL), 0.0
        if few:
            whole = max(self.seconds(variant, MODEL) for variant in WHOLE)
            seconds = whole * (self.seconds(ROWS, MODEL64) or few) / few
        limit, longest = self._budget.product_seconds, self._budget.seconds
        self.float64_is_slow = fits and limit < seconds <= longest
        return fits and seconds <= (longest if self.waits_for_float64 else limit)

    def _fits_in_float64(self, eager: Evaluation) -> bool:
        own = backend(self._models.process.device)
        if not own.own_memory:
            return True
        tensors = [value for value in (*eager.outputs.values(), *eager.gradients.values()) if value is not None]
        largest = max((value.nbytes for value in tensors), default=0)
        needed = 2 * self._models.process.worker.peak_device_bytes + nbytes_of(tensors) + 4 * largest
        return not self.spares_memory and needed <= own.allocatable_bytes()


def paced_runs(again: Again, count: int, pace: Pace) -> Iterator[Evaluation]:
    """Yields perturbed runs for so many turns; only one if it is slow.

    The eager run, which may have loaded kernels, cannot tell that.
    """
    if not pace.is_slow():
        yield from again(range(count), nonsmooth.PERTURBATION_ULPS)
        return
    started = pace.clock()
    for run in again(range(min(count, 1)), nonsmooth.PERTURBATION_ULPS):
        pace.note(MODEL, started)
        yield run
    if not pace.is_slow():
        yield from again(range(1, count), nonsmooth.PERTURBATION_ULPS)
