"""Asks the reference for everything that a candidate is compared with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from grader.catalog.problem_module import FULL
from grader.errors import ReferenceRefused
from grader.executor import WorkerClient
from grader.grading.budget import Budget
from grader.grading.oracle.case import Case
from grader.grading.oracle.cases import Cases
from grader.grading.oracle.evaluation import MODEL64, Evaluation, Pass
from grader.grading.oracle.fewer_rows import ROWS, with_fewer_rows
from grader.grading.oracle.models import ReferenceModels
from grader.grading.oracle.reference_process import ReferenceProcess
from grader.grading.oracle.run_costs import RunCosts
from grader.grading.oracle.traits import Traits
from grader.machine.backends import backend
from grader.verdict.models import Device, Problem
from grader.verdict.precision import Precision

KEPT_BYTES = 1 << 30
"""Bytes of cases that are dropped when another problem is graded, and of one that is dropped before it is timed."""
_Answer = TypeVar("_Answer")


class Oracle:
    """The reference of one problem on one device: its process, its models, its cases, and its answers."""

    def __init__(
        self,
        problem: Problem,
        device: Device,
        worker: WorkerClient,
        budget: Budget | None = None,
        precision: Precision = Precision.FP32,
    ) -> None:
        self.problem, self.device, self.precision, self.budget = problem, device, precision, budget or Budget()
        self.process = ReferenceProcess(problem, device, worker, precision)
        self.models = ReferenceModels(self.process)
        self.costs = RunCosts(self.models, self.budget)
        self.cases = Cases(self.models, self.budget, self.costs)
        self._answers: dict[Hashable, Any] = {}
        """About the problem and its sizes; those about a case are its own (`remembered`)."""
        self._try_fewer_rows()

    def _try_fewer_rows(self) -> None:
        """Add a variant with fewer rows if the problem has one large size only and the reference takes it."""
        whole = self.models.module
        if set(whole.variants) != {FULL}:
            return
        _, inputs = self.models.draw(FULL)
        for tried in with_fewer_rows(whole, inputs):
            inputs, self.models.module = [], tried
            try:
                self.case(ROWS)
            except ReferenceRefused:
                self.cases.made.clear()
                self.cases.not_compared.clear()
                self.models.forget_looks()
                continue
            return
        self.models.module = whole

    def case(self, variant: str, *, training: bool = True, draw: int = 0) -> Case:
        """The case of a variant with this number of the draw (`Cases.case`)."""
        return self.cases.case(variant, training=training, draw=draw)

    def clock(self) -> float:
        """Seconds of the reference's process."""
        return self.process.clock()

    def traits(self, case: Case) -> Traits:
        """Facts about the reference in the case's sizes and mode."""
        return self.models.traits(case)

    def ask(self, case: Case, passes: Iterable[Pass], *, streamed: bool = False) -> Iterator[Evaluation]:
        """Yield the results of passes of the case's models."""
        return self.models.ask(case, passes, streamed=streamed)

    def remember(self, key: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        """The reference's answer to a question about the problem, which each submission raises; asked once."""
        if key not in self._answers:
            self._answers[key] = ask()
        answer: _Answer = self._answers[key]
        return answer

    def is_slow(self, case: Case) -> bool:
        """Whether a pass of this size takes so long that it has one draw and one perturbed run."""
        return self.costs.is_slow(case)

    def runs_float64(self, case: Case) -> bool:
        """Whether the reference runs in float64, and such runs of this size fit into the memory and the time."""
        return self.traits(case).has_float64 and case.variant not in self.costs.unaffordable

    def exact_seconds(self, case: Case) -> float:
        """Seconds of a float64 forward and backward of this size; 0 where it was not run by itself."""
        return self.costs.seconds(case.variant, MODEL64)

    def release(self) -> None:
        """Leave the device's memory to others; models are constructed again when they are needed."""
        self.models.release()

    def step_back(self) -> None:
        """Leave the device to another reference: end all processes but the active one."""
        self.release()
        self.process.keep(1)
        if backend(self.device).own_memory:
            if self.cases.nbytes > KEPT_BYTES:
                self.cases.forget_all()
            backend(self.device).empty_cache()
