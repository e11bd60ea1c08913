"""Streams work through a pool: bounded in flight, verdicts as they are reached."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from queue import Empty, SimpleQueue

from grader.catalog.requests import Request
from grader.errors import Cancelled, NotGraded
from grader.verdict.models import Verdict

Result = tuple[Request, Verdict | NotGraded]

SIGNAL_SECONDS = 0.2
"""How often the caller's thread looks for a signal: one that comes just before it waits does not end the wait."""


class Stream:
    """One batch on its way through a pool: a thread reads the work, the caller takes the results."""

    def __init__(
        self, requests: Iterable[Request], submit: Callable[[Request], Future[Verdict]], most_in_flight: int
    ) -> None:
        self._requests, self._submit = requests, submit
        self._room = threading.Semaphore(most_in_flight)
        self._reached: SimpleQueue[tuple[Request, Future[Verdict]] | BaseException | None] = SimpleQueue()
        """Requests whose futures are done, an error of the work, or None for its end."""
        self._lock = threading.Lock()
        self._futures: set[Future[Verdict]] = set()
        """Of the requests in flight."""
        self._stopped = False

    def results(self) -> Generator[Result, None, None]:
        """Yields (request, verdict). Left early, what waits is cancelled and what runs is dropped."""
        threading.Thread(target=self._read, name="grader-work", daemon=True).start()
        try:
            ended = False
            while not (ended and not self._futures):
                reached = self._next()
                if reached is None:
                    ended = True
                elif isinstance(reached, BaseException):
                    raise reached
                else:
                    yield self._result(*reached)
        finally:
            self._stop()

    def _next(self) -> tuple[Request, Future[Verdict]] | BaseException | None:
        while True:
            with suppress(Empty):
                return self._reached.get(timeout=SIGNAL_SECONDS)

    def _result(self, request: Request, future: Future[Verdict]) -> Result:
        with self._lock:
            self._futures.discard(future)
        self._room.release()
        try:
            return request, future.result()
        except NotGraded as error:
            return request, error
        except CancelledError:
            return request, Cancelled("cancelled before its turn")

    def _read(self) -> None:
        try:
            for request in self._requests:
                self._room.acquire()
                if not self._begin(request):
                    return
            self._reached.put(None)
        except BaseException as error:
            self._reached.put(error)

    def _begin(self, request: Request) -> bool:
        """Have a request graded; False if the caller has left."""
        with self._lock:  # `_stop` comes before, or finds the future
            if self._stopped:
                return False
            future = self._submit(request)
            self._futures.add(future)
        future.add_done_callback(lambda done: self._reached.put((request, done)))
        return True

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            futures = list(self._futures)
        for future in futures:
            future.cancel()
        self._room.release()
