"""Compiles extensions before their submission's turn, several at a time, if the device permits it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from grader.catalog.requests import Request
from grader.grading import build
from grader.grading.ahead import step_for
from grader.grading.resources import Resources
from grader.machine.backends import backend
from grader.machine.host import builds_at_a_time
from grader.verdict.models import Submission
from grader.verdict.stages import BuildResult

LATER_NICENESS = 10
"""Niceness (setpriority(2)) of builds of submissions that are not yet graded: about a tenth of the CPU share of
everything else."""


class Builds:
    """Builds that are started and not yet collected."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._pool: ThreadPoolExecutor | None = None
        self._started: dict[str, Future[build.Built]] = {}
        self.at_a_time = builds_at_a_time()

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """While inside, builds may be started; what is not done at the end is given up."""
        with ThreadPoolExecutor(self.at_a_time) as self._pool:
            try:
                yield
            finally:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._started.clear()

    def start(self, request: Request) -> None:
        """Build in the background, unless it is kept or under way.

        Only for a device that builds apart and is available: without a GPU, CPU times need the cores.
        """
        if self._pool is None or not _builds_apart(request):
            return
        submission = request.submission
        if submission.source_hash not in self._started and self._resources.cache.get(submission) is None:
            niceness = LATER_NICENESS if self._started else 0
            started = self._pool.submit(self._resources.build_apart, submission, request.device, niceness=niceness)
            self._started[submission.source_hash] = started

    def under_way(self, submission: Submission) -> bool:
        """It would have to be waited for."""
        started = self._started.get(submission.source_hash)
        return started is not None and not started.done()

    def get(self, request: Request) -> BuildResult | None:
        """The build's result, made now unless it was started; None if a kept build serves. Raises Stopped."""
        submission = request.submission
        started = self._started.pop(submission.source_hash, None)
        if started is not None:
            return started.result().result
        if not backend(request.device).available():
            ahead = [step for step in (step_for(request),) if step is not None]
            return self._resources.build_apart(submission, request.device, ahead=ahead).result
        if self._resources.cache.get(submission) is None:
            return self._resources.build_apart(submission, request.device).result
        return None


def _builds_apart(request: Request) -> bool:
    own = backend(request.device)
    return own.builds_apart and own.available()
