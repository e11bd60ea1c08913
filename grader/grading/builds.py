"""Extensions of CUDA submissions are compiled before their turn comes, several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from grader.grading import build
from grader.grading.resources import Resources
from grader.verdict.models import BuildResult, Submission

LATER_NICENESS = 10
"""Of builds that nobody waits for yet: a tenth of the share of the first, of references and of what is graded."""


class Builds:
    """Those that have been started and not yet asked for."""

    def __init__(self, resources: Resources) -> None:
        self._workshop = resources
        self._pool: ThreadPoolExecutor | None = None
        self._started: dict[str, Future[build.Built]] = {}
        self.at_a_time = max(1, len(os.sched_getaffinity(0)) // 2)
        """One build keeps two cores busy."""

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """While inside, builds may be started; what is not done at the end is given up."""
        with ThreadPoolExecutor(self.at_a_time) as self._pool:
            try:
                yield
            finally:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._started.clear()

    def start(self, submission: Submission) -> None:
        """In the background, unless it is there or under way. Without a GPU never: the CPU's times want the cores."""
        if self._pool is None or not torch.cuda.is_available():
            return
        if submission.source_hash not in self._started and self._workshop.cache.get(submission) is None:
            niceness = LATER_NICENESS if self._started else 0
            made = self._pool.submit(self._workshop.build_apart, submission, niceness=niceness)
            self._started[submission.source_hash] = made

    def under_way(self, submission: Submission) -> bool:
        """It would have to be waited for."""
        started = self._started.get(submission.source_hash)
        return started is not None and not started.done()

    def get(self, submission: Submission) -> BuildResult | None:
        """What its build came to, made now if need be; None where a kept one will do. Raises Stopped."""
        started = self._started.pop(submission.source_hash, None)
        if started is not None:
            return started.result().result
        if self._workshop.cache.get(submission) is None or not torch.cuda.is_available():
            return self._workshop.build_apart(submission).result
        return None
