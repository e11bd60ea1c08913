"""The trusted reference in a worker process, which runs its jobs one after another."""

from __future__ import annotations

import time

from grader import protocol as p
from grader.errors import GraderError, ReferenceKilled, ReferenceLost, ReferenceOutOfMemory, ReferenceRefused
from grader.executor import JobBuilder, JobResult, Killer, WorkerClient, WorkerLost
from grader.machine.backends import backend
from grader.verdict.models import Device, Problem, Status, TimeLimits
from grader.verdict.precision import Precision

REFERENCE_SECONDS = TimeLimits().construction
"""Time limit of one job of the reference: as long as a submission may take to construct its model."""


class ReferenceProcess:
    """The reference of one problem on one device, and the workers that hold it."""

    def __init__(
        self, problem: Problem, device: Device, worker: WorkerClient, precision: Precision = Precision.FP32
    ) -> None:
        self.problem, self.device, self.precision = problem, device, precision
        self.workers = [worker]
        """The active worker first, then others that were active before and are still running."""
        self.is_released = False
        """Whether no job ran since its memory was given back."""
        self.is_broken = False
        """Whether a job was lost or ran out of memory, so that nobody knows what the worker holds."""
        self.seconds_run = 0.0
        """How long all jobs together took."""
        self.pending: list[p.Step] = []
        """Steps that the next job begins with, whose answers nobody needs."""

    @property
    def worker(self) -> WorkerClient:
        """The active worker."""
        return self.workers[0]

    def clock(self) -> float:
        """Seconds; of calls on the host, without what the active worker waited for a core."""
        return self.worker.busy_seconds() if backend(self.device).on_host else time.monotonic()

    def step(self, step: p.Step) -> p.Result:
        """The result of a job of one step. Raises ProblemError if it fails."""
        job = JobBuilder(self.worker, self.device)
        job.step(step)
        return self.run(job).evidence.results[-1]

    def run(
        self, job: JobBuilder, timeout_seconds: float = REFERENCE_SECONDS, *, tolerate_failure: bool = False
    ) -> JobResult:
        """The result of a job. Raises ProblemError if it fails, or one of its subclasses, and ReferenceKilled.

        `tolerate_failure` returns what a step raised, but for a lack of memory, which says nothing about the problem.
        """
        self.is_released = False
        job.begin_with(self.pending)
        self.pending = []
        started = time.monotonic()
        try:
            result = job.run(timeout_seconds)
        except WorkerLost as lost:
            self.is_broken = True
            raise self._lost(lost) from lost
        finally:
            self.seconds_run += time.monotonic() - started
        result.lost_as(self._lost)
        failure = result.failure
        short = failure is not None and failure.kind == "out_of_memory"
        self.is_broken |= short
        if failure is not None and (short or not tolerate_failure):
            error = ReferenceOutOfMemory if short else ReferenceRefused
            raise error(
                f"{self.problem.path}: the reference raised {failure.type_name} on {self.device}: "
                f"{(failure.text.splitlines() or [''])[0]}"
            )
        return result

    def release(self) -> None:
        """Give all memory of the device back, with the models."""
        self.step(p.Drop(models=True, keep_bytes=0))
        self.worker.release_memory()
        backend(self.device).empty_cache()
        self.is_released = True

    def activate(self, worker: WorkerClient, *, keep: int) -> bool:
        """Make this worker the active one, of so many that are kept; whether it is a new one."""
        new = worker not in self.workers
        self.workers = [worker, *(other for other in self.workers if other is not worker)]
        self.keep(keep)
        return new

    def keep(self, count: int) -> None:
        """End all workers but the first `count`."""
        for worker in self.workers[count:]:
            worker.close()
        del self.workers[count:]

    def dismiss(self) -> None:
        """Begin to end the processes, so that `close` waits less."""
        for worker in self.workers:
            worker.dismiss()

    def close(self) -> None:
        """End the processes."""
        self.keep(0)

    def _lost(self, lost: WorkerLost) -> GraderError:
        error: type[GraderError] = ReferenceOutOfMemory if lost.status is Status.OUT_OF_MEMORY else ReferenceLost
        if lost.killer in (Killer.HOST, Killer.UNKNOWN):
            error = ReferenceKilled
        return error(f"{self.problem.path}: the reference {lost} on {self.device}")
