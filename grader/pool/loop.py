"""Grades the requests of one place as they arrive, in their order."""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Protocol

from grader.catalog.requests import Request
from grader.options import GraderOptions
from grader.pool.messages import Answer, GradeOrder
from grader.verdict.models import Device, Environment, Status, Verdict
from grader.verdict.profiles import Profile


class Engine(Protocol):
    """The part of `Grader` that a place needs; a stand-in makes verdicts at no cost."""

    def grade_many(self, work: Iterable[Request]) -> Generator[Verdict, None, None]:
        """Verdicts in the order of the work, which it looks at again before each, also after its end."""

    def profile(self, work: Request) -> Profile:
        """A submission beside its reference."""

    def environment_on(self, device: Device) -> Environment:
        """The environment of a verdict on this device."""

    def stop(self, request: Request) -> None:
        """End a request at its next job: `grade_many` raises Cancelled for it. Any thread."""

    def device_fault(self, device: Device) -> str | None:
        """Why the device no longer works, in one line; None if it does."""

    def close(self) -> None:
        """End the workers."""


class _Arrived(Iterator[Request]):
    """Ends where nothing more has arrived, since the engine must not wait for it, and goes on when something has.

    So the engine prepares what arrives while it grades.
    """

    def __init__(self, following: Iterator[Request | None]) -> None:
        self._following = following

    def __next__(self) -> Request:
        request = next(self._following)
        if request is None:
            raise StopIteration
        return request


def make_engine(name: str, options: GraderOptions) -> Engine:
    """Call `module:name` with the options."""
    module, _, attribute = name.partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)(options)
    return engine


class GradingLoop:
    """`put` adds work from any thread; `run` grades it in one thread until the work ends."""

    def __init__(self, engine: Engine, answer: Callable[[Answer], None]) -> None:
        self._engine, self._answer = engine, answer
        self._arriving: SimpleQueue[GradeOrder | None] = SimpleQueue()
        self._next: deque[GradeOrder] = deque()
        """Arrived before, and not graded when an earlier one failed."""
        self._taken: deque[GradeOrder] = deque()
        """Given to the engine and not answered."""
        self._lock = threading.Lock()
        self._requests: dict[int, Request] = {}
        """The engine's requests by number."""
        self._unwanted = set[int]()
        """Numbers of requests that are to end and have not been answered."""

    def put(self, work: GradeOrder | None) -> None:
        """Add work; None ends the loop."""
        self._arriving.put(work)

    def stop(self, number: int) -> None:
        """End the work of this number at its next job, or when its turn comes. Any thread may call this."""
        with self._lock:
            self._unwanted.add(number)
            request = self._requests.get(number)
        if request is not None:
            self._engine.stop(request)

    def run(self) -> None:
        """Grade until the end, or until the device fails, which is the last answer."""
        while (first := self._next.popleft() if self._next else self._arriving.get()) is not None:
            try:
                if first.request.profiled:
                    self._profile(first)
                    continue
                for verdict in self._engine.grade_many(_Arrived(self._following(first))):
                    fault = self._fault(verdict)
                    if fault is not None:
                        self._answer(Answer(device_fault=fault))
                        return
                    self._answer(Answer.of(self._answered(), verdict))
            except Exception as error:
                if not self._taken:
                    raise
                self._answer(Answer.of(self._answered(), error))
                self._next.extendleft(reversed(self._taken))  # they arrived before what is there
                self._taken.clear()

    def _following(self, first: GradeOrder) -> Iterator[Request | None]:
        """The first, then what else has arrived; None while nothing has. Ends before a profile."""
        work: GradeOrder | None = first
        while work is None or not work.request.profiled:
            if work is None:
                yield None
            else:
                self._taken.append(work)
                yield self._begun(work)
            work = self._another()
        self._next.appendleft(work)

    def _profile(self, work: GradeOrder) -> None:
        """A profile stands between gradings: neither is prepared while the other runs."""
        self._taken.append(work)
        profile = self._engine.profile(self._begun(work))
        self._answer(Answer.of(self._answered(), profile))

    def _begun(self, work: GradeOrder) -> Request:
        with self._lock:
            self._requests[work.number] = work.request
            unwanted = work.number in self._unwanted
        if unwanted:
            self._engine.stop(work.request)
        return work.request

    def _answered(self) -> int:
        """The number of the work whose answer is known now."""
        number = self._taken.popleft().number
        with self._lock:
            self._requests.pop(number, None)
            self._unwanted.discard(number)
        return number

    def _another(self) -> GradeOrder | None:
        if self._next:
            return self._next.popleft()
        try:
            work = self._arriving.get_nowait()
        except Empty:
            return None
        if work is None:
            self._arriving.put(None)  # for `run`, after what is taken
        return work

    def _fault(self, verdict: Verdict) -> str | None:
        """A failed grading says little of the device; a call on it says whether it is lost."""
        return self._engine.device_fault(verdict.device) if verdict.status is Status.GRADER_ERROR else None
