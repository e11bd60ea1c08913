"""Grading from Python: one submission, many with warm workers, or many while an event loop goes on.

Importing this module does not import torch; making a `Grader` does.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, TypeVar

from grader.catalog.problems import find_problems
from grader.catalog.requests import Pair, Request, RequestReader, Work
from grader.errors import NotGraded, reason
from grader.options import GraderOptions
from grader.verdict.models import Device, Environment, Problem, Settings, Verdict
from grader.verdict.profiles import Profile

T = TypeVar("T")


def grade(
    path: str | Path | None = None,
    *,
    source: str | None = None,
    problem: str | Path | Problem | None = None,
    problems: Iterable[str | Path] = (),
    options: GraderOptions | None = None,
    **changes: Any,
) -> Verdict:
    """Grade one submission: a file, or its source.

        grade("ann/conv2d_mul_leaky_relu_gelu__v2.py")
        grade("my_kernel.py", problem="conv2d_mul_leaky_relu_gelu", quick=True)
        grade(source=text, problem="my_problem.py", options=GraderOptions(device="cpu"))

    Without `problem` the file's name names it, as on the command line. `problems` are folders with more problems.
    `changes` are fields of GraderOptions and replace those of `options`. Starting the workers takes seconds: for many
    submissions, keep a `Grader`.

    What is wrong with the submission is in the verdict. Raises UserError for a file, problem or option that does not
    exist, and SandboxUnavailable where submissions cannot be isolated.
    """
    pair = RequestReader(find_problems(map(Path, problems))).resolve(path, source, problem)
    with Grader(options, **changes) as grader:
        return next(grader.grade_many([pair]))


class GradesMany:
    """Base of everything with `grade_many` and `close`: a context manager, also for event loops."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        raise NotImplementedError

    def grade_many(self, work: Iterable[Work | Request]) -> Generator[Verdict, None, None]:
        """Yields verdicts, each as it is reached."""
        raise NotImplementedError

    async def agrade_many(self, work: Iterable[Work | Request]) -> AsyncGenerator[Verdict, None]:
        """`grade_many` in a thread of its own, so that the event loop goes on meanwhile.

        `work` is read in that thread. When it is cancelled or left early, it ends after the verdict of the submission
        that is being graded, which is dropped: no worker is left in the middle of a job, and the grader can be used
        again at once.
        """
        async with aclosing(in_a_thread(self.grade_many(work))) as verdicts:
            async for verdict in verdicts:
                yield verdict


class GradesRequests(GradesMany):
    """Base of `Grader` and `GraderPool`: what a batch needs of them, and what both do alike."""

    waits_apart = False
    """Whether it reads the work in a thread of its own, so that waiting for work delays no verdict."""

    def __init__(
        self, options: GraderOptions | None, problems: Iterable[str | Path], changes: Mapping[str, Any]
    ) -> None:
        self.options = (options or GraderOptions()).replace(**changes)
        self._reader = RequestReader(find_problems(map(Path, problems)))

    def request(self, work: Work | Request) -> Request:
        """The request for `work`: problem, submission, device, languages. Raises UserError if it is invalid."""
        return work if isinstance(work, Request) else self._request(self._reader.pair(work))

    def settings_for(self, work: Work | Request) -> Settings:
        """The settings of its verdict: its device and this grader's options."""
        request = self.request(work)
        return self.options.settings(request.device, request.precision)

    def environments_for(self, work: Work | Request) -> tuple[Environment, ...]:
        """Machine and versions of its verdict; in a pool, one for each kind of machine.

        A stored verdict that has one of them is reused.
        """
        return self._environments(self.request(work).device)

    def grade(
        self,
        path: str | Path | None = None,
        *,
        source: str | None = None,
        problem: str | Path | Problem | None = None,
    ) -> Verdict:
        """Grade one file or source; as the function `grade`, with this grader's workers and options."""
        return self._grade(self._request(self._reader.resolve(path, source, problem)))

    def stop(self, request: Request) -> None:
        """End a request at its next job, or before it begins: `results` has Cancelled for it."""
        raise NotImplementedError

    def results(self, work: Iterable[Work | Request]) -> Generator[tuple[Request, Verdict | NotGraded], None, None]:
        """`grade_many`, each verdict with its request; what is stopped has none, and the others go on."""
        raise NotImplementedError

    def _request(self, pair: Pair) -> Request:
        raise NotImplementedError

    def _environments(self, device: Device) -> tuple[Environment, ...]:
        raise NotImplementedError

    def _grade(self, request: Request) -> Verdict:
        raise NotImplementedError


class Grader(GradesRequests):
    """Warm workers and references for many submissions. A context manager.

        with Grader(device="cuda") as grader:
            for verdict in grader.grade_many(work):
                ...

    Any thread may call it; submissions are graded one at a time, because they share the machine that times them. CUDA
    extensions are compiled ahead, in parallel. From the second `grade` on, a worker for one more submission starts
    meanwhile.
    """

    def __init__(
        self, options: GraderOptions | None = None, *, problems: Iterable[str | Path] = (), **changes: Any
    ) -> None:
        """`problems` are folders with more problems; `changes` are fields of GraderOptions and replace `options`'.

        Raises UserError for a device, folder or option that does not exist, SandboxUnavailable where the sandbox does
        not work.
        """
        from grader.grading.pipeline import Pipeline

        super().__init__(options, problems, changes)
        self._pipeline = Pipeline(self.options)
        self._turn = threading.RLock()
        self._has_graded = False

    def close(self) -> None:
        """End the workers, after the verdict of the submission that is being graded."""
        with self._turn:
            self._pipeline.close()

    def environment_on(self, device: Device) -> Environment:
        """The environment of a verdict on this device."""
        return self._pipeline.resources.environment(device)

    def device_fault(self, device: Device) -> str | None:
        """Why the device no longer works, in one line; None if a call on it succeeds."""
        from grader.machine.backends import backend

        own = backend(device)
        if not own.available():
            return None if own.on_host or not own.names() else f"{device.value} is not available to PyTorch"
        try:
            own.prepare()
            own.synchronize()
        except RuntimeError as error:
            return reason(error)
        return None

    def profile(self, work: Work | Request) -> Profile:
        """A submission beside its reference, kernel by kernel: a claim, never a verdict.

        Raises UserError for invalid work and for a submission that cannot be built or constructed.
        """
        with self._turn:
            return self._pipeline.profile(self.request(work))

    def grade_many(self, work: Iterable[Work | Request]) -> Generator[Verdict, None, None]:
        """Yields verdicts in the order of the work, each as it is reached. Raises UserError for invalid work.

        `work` is read as it is needed, a few items ahead, and may be endless.
        """
        verdicts = self._pipeline.grade_many(map(self.request, work))
        try:
            while True:
                with self._turn:
                    verdict = next(verdicts, None)
                if verdict is None:
                    return
                yield verdict
        finally:
            with self._turn:
                verdicts.close()

    def stop(self, request: Request) -> None:
        """End a request at its next job, or before it begins: `results` has Cancelled for it."""
        self._pipeline.stop(request)

    def results(self, work: Iterable[Work | Request]) -> Generator[tuple[Request, Verdict | NotGraded], None, None]:
        """`grade_many`, each verdict with its request; what is stopped has none, and the others go on."""
        pending, arriving = deque[Request](), map(self.request, work)

        def requests(again: Iterable[Request]) -> Iterator[Request]:
            yield from again
            for request in arriving:
                pending.append(request)
                yield request

        again: tuple[Request, ...] | None = ()
        while again is not None:
            try:
                for verdict in self.grade_many(requests(again)):
                    yield pending.popleft(), verdict
                again = None
            except NotGraded as error:
                yield pending.popleft(), error
                again = tuple(pending)

    def _request(self, pair: Pair) -> Request:
        return self._pipeline.request(*pair)

    def _environments(self, device: Device) -> tuple[Environment, ...]:
        return (self.environment_on(device),)

    def _grade(self, request: Request) -> Verdict:
        with self._turn:
            verdict = self._pipeline.grade(request, upcoming=request if self._has_graded else None)
            self._has_graded = True
            return verdict


def open_grader(options: GraderOptions) -> Grader:
    """A grader whose worker template imports torch while this process does, which takes seconds."""
    from grader.executor import launcher, worker_template
    from grader.machine.allocator import keep_freed_memory
    from grader.machine.backends import select_index
    from grader.machine.collector import permanent
    from grader.sandbox import choose

    keep_freed_memory()
    select_index(options.device, options.device_index)
    if options.sandbox != "weak":
        worker_template.start_ahead(options.device)
    try:
        sandbox = choose(options.sandbox)
        if not sandbox.copies:
            worker_template.close_ahead()
        launcher.start_ahead(sandbox, options.device)
        with permanent():
            return Grader(options)
    finally:
        launcher.close_ahead()
        worker_template.close_ahead()


async def in_a_thread(items: Generator[T, None, None]) -> AsyncGenerator[T, None]:
    """The items of a generator that runs in a thread of its own; it is closed there before this ends."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, thread_name_prefix="grader") as thread:
        try:
            while (item := await loop.run_in_executor(thread, next, items, None)) is not None:
                yield item
        finally:
            await _finish(loop.run_in_executor(thread, items.close))


async def _finish(last: asyncio.Future[None]) -> None:
    """Wait for `last` however often this task is cancelled meanwhile; then raise the cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not last.done():
        try:
            await asyncio.shield(last)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
