"""A `Grader` that grades on several devices at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from grader.api import GradesRequests
from grader.catalog.requests import Pair, Request, Work, make_request
from grader.errors import NotGraded, UserError
from grader.options import GraderOptions
from grader.pool.dispatch import Dispatcher
from grader.pool.host import GpuChoice, host_places
from grader.pool.place import Place, PlaceState
from grader.pool.stream import Stream
from grader.verdict.models import Device, Environment, Verdict
from grader.verdict.profiles import Profile

ENGINE = "grader.api:open_grader"
HANG_SECONDS = 1800.0
"""A grading without a verdict for so long has hung: each of its jobs has a shorter limit."""
READ_AHEAD = 2
"""Requests in flight for each that places hold, so that none waits while a verdict is stored."""

log = logging.getLogger(__name__)


class GraderPool(GradesRequests):
    """A `Grader` with a process for each GPU, or several for the CPU: a context manager.

        with GraderPool(gpus="all", quick=True) as pool:
            for verdict in pool.grade_many(work):  # in the order in which they are reached
                ...

    Any thread may call it. A process that ends loses nothing: its submission is graded again, at another place where
    there is one. A submission that has ended two processes is `crashed`.
    """

    waits_apart = True

    def __init__(
        self,
        options: GraderOptions | None = None,
        *,
        gpus: GpuChoice = None,
        workers: int | None = None,
        ray: str | None = None,
        problems: Iterable[str | Path] = (),
        say: Callable[[str], None] = log.warning,
        engine: str | None = None,
        hang_seconds: float = HANG_SECONDS,
        limit_seconds: float | None = None,
        **changes: Any,
    ) -> None:
        """`gpus` are `all`, or indices among those visible or UUIDs; `workers` is a number of processes on the CPU.
        `ray` is `auto` or the address of a Ray cluster: all its GPUs, or `workers` on its CPUs.

        `say` gets a line when a place is set aside. A grading that takes `limit_seconds` ends without a verdict.
        `engine` is `module:name` of what grades in each process. `changes` are fields of GraderOptions. Raises
        UserError for a choice that does not exist, SandboxUnavailable where the sandbox does not work.
        """
        super().__init__(options, problems, changes)
        places, self._disconnect = _places(self.options, gpus, workers, ray, engine or ENGINE)
        self._default_device = places[0].device
        self.capacity = READ_AHEAD * sum(place.depth for place in places)
        """Requests to have in flight so that no place waits; more only wait in the pool."""
        self._dispatcher = Dispatcher(
            places, self.settings_for, say, hang_seconds=hang_seconds, limit_seconds=limit_seconds
        )
        try:
            self._dispatcher.environments(self._default_device)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes at once; what is being graded is dropped, and its callers get a GraderError."""
        self._dispatcher.close()
        self._disconnect()

    def places(self) -> tuple[PlaceState, ...]:
        """The places with their states."""
        return self._dispatcher.states()

    def submit(self, work: Work | Request, *, priority: int = 0) -> Future[Verdict]:
        """The verdict to come. Cancelled before its turn it is not graded. Raises UserError for invalid work.

        A higher `priority` goes first; authors of one priority take turns. Keep at most some thousands in flight: each
        is kept in memory.
        """
        return self._dispatcher.submit(self.request(work), priority)

    def profile(self, work: Work | Request) -> Profile:
        """`Grader.profile`, at the first place that is free.

        Raises NotGraded if the submission ends two processes.
        """
        profile: Profile = self._dispatcher.submit(replace(self.request(work), profiled=True)).result()
        return profile

    def stop(self, request: Request) -> None:
        """End a request at its next job, or before it begins: `results` has Cancelled for it."""
        self._dispatcher.stop(lambda one: one is request)

    def cancel(self, author: str) -> None:
        """End all that this author has here, what runs at its next job.

        Futures raise Cancelled, or CancelledError before their turn.
        """
        self._dispatcher.stop(lambda one: one.submission.author == author)

    def grade_many(self, work: Iterable[Work | Request]) -> Generator[Verdict, None, None]:
        """Yields verdicts in the order in which they are reached. Raises UserError for invalid work.

        `work` is read in a thread, as far ahead as the places need, and may be endless.
        """
        for _, verdict in self.results(work):
            if isinstance(verdict, NotGraded):
                log.warning("%s", verdict)
            else:
                yield verdict

    def results(self, work: Iterable[Work | Request]) -> Generator[tuple[Request, Verdict | NotGraded], None, None]:
        """`grade_many`, each verdict with its request; what is stopped ends without one."""
        return Stream(
            map(self.request, work), lambda one: self._dispatcher.submit(one, one.priority), self.capacity
        ).results()

    def _request(self, pair: Pair) -> Request:
        return make_request(*pair, self.options, default_device=self._default_device)

    def _environments(self, device: Device) -> tuple[Environment, ...]:
        return self._dispatcher.environments(device)

    def _grade(self, request: Request) -> Verdict:
        return self.submit(request).result()


def _places(
    options: GraderOptions, gpus: GpuChoice, workers: int | None, ray: str | None, engine: str
) -> tuple[Sequence[Place], Callable[[], None]]:
    """The places of the host or of a Ray cluster, and what to call when they have ended. Raises UserError."""
    if ray is None:
        return host_places(options, gpus, workers, engine), lambda: None
    if gpus is not None:
        raise UserError("--gpus chooses among this host's GPUs, and --ray takes all of the cluster; use one of them")
    from grader.pool.ray_places import connect, ray_places

    connected, disconnect = connect(ray)
    try:
        return ray_places(connected, options, ray, workers, engine), disconnect
    except BaseException:
        disconnect()
        raise
