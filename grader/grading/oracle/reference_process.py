"""The trusted reference in a worker process: runs one job after another, and raises ProblemError where one fails."""

from __future__ import annotations

from grader import protocol as p
from grader.errors import ProblemError, ReferenceLost
from grader.executor import JobBuilder, JobResult, WorkerClient, WorkerLost
from grader.verdict.models import Device, Problem

REFERENCE_SECONDS = 300.0
"""Time limit of one job of the reference."""


class ReferenceProcess:
    """The reference of one problem on one device, and the workers that hold it."""

    def __init__(self, problem: Problem, device: Device, worker: WorkerClient) -> None:
        self.problem, self.device = problem, device
        self.workers = [worker]
        """The active worker first, then others that were active before and are still running."""
        self._released = False

    @property
    def worker(self) -> WorkerClient:
        """The active worker."""
        return self.workers[0]

    def step(self, step: p.Step) -> p.Result:
        """One step as a job of its own. Raises ProblemError."""
        script = JobBuilder(self.worker, self.device)
        script.step(step)
        return self.run(script).evidence.results[0]

    def run(
        self, script: JobBuilder, timeout_seconds: float = REFERENCE_SECONDS, *, tolerate_failure: bool = False
    ) -> JobResult:
        """Have the reference carry out a job. Raises ProblemError where it fails, ReferenceLost where it dies."""
        self._released = False
        try:
            finding = script.run(timeout_seconds)
        except WorkerLost as lost:
            raise self._lost(lost) from lost
        finding.lost_as(self._lost)
        if finding.failure is not None and not tolerate_failure:
            failure = finding.failure
            raise ProblemError(
                f"{self.problem.path}: the reference raised {failure.type_name} on {self.device}: "
                f"{(failure.text.splitlines() or [''])[0]}"
            )
        return finding

    def _lost(self, lost: WorkerLost) -> ReferenceLost:
        return ReferenceLost(f"{self.problem.path}: the reference {lost} on {self.device}")
