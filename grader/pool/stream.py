"""Streams work through a pool: bounded in flight, each source once, verdicts as they are reached."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from queue import Empty, SimpleQueue

from grader.catalog.requests import Request
from grader.errors import Cancelled, NotGraded
from grader.verdict.models import Verdict

Result = tuple[Request, Verdict | NotGraded]
Same = tuple[str, ...]

MOST_COPIES = 1000
"""Requests that wait for the verdict on the same source; more are not read ahead."""
KEPT_VERDICTS = 256
"""Verdicts that are kept for later requests with the same source: about 10 MB."""

SIGNAL_SECONDS = 0.2
"""How often the caller's thread looks for a signal: one that comes just before it waits does not end the wait."""


def same(request: Request) -> Same:
    """The key that requests with the same verdict share."""
    submission, problem = request.submission, request.problem
    text = submission.unreadable or submission.source_hash
    return problem.id, problem.source_hash, request.device, request.precision, text


class Stream:
    """One batch on its way through a pool: a thread reads the work, the caller takes the results."""

    def __init__(
        self, requests: Iterable[Request], submit: Callable[[Request], Future[Verdict]], most_in_flight: int
    ) -> None:
        self._requests, self._submit = requests, submit
        self._room, self._copies = threading.Semaphore(most_in_flight), threading.Semaphore(MOST_COPIES)
        self._reached: SimpleQueue[tuple[Same, Future[Verdict]] | BaseException | None] = SimpleQueue()
        """Futures that are done, an error of the work, or None for its end."""
        self._lock = threading.Lock()
        self._waiting: dict[Same, deque[Request]] = {}
        """Requests in flight, by source; the first of each is graded."""
        self._futures: set[Future[Verdict]] = set()
        self._kept: OrderedDict[Same, Verdict] = OrderedDict()
        self._stopped = False

    def results(self) -> Generator[Result, None, None]:
        """Yields (request, verdict). Left early, what waits is cancelled and what runs is dropped."""
        threading.Thread(target=self._read, name="grader-work", daemon=True).start()
        try:
            ended = False
            while not (ended and not self._waiting):
                reached = self._next()
                if reached is None:
                    ended = True
                elif isinstance(reached, BaseException):
                    raise reached
                else:
                    yield from self._take(*reached)
        finally:
            self._stop()

    def _next(self) -> tuple[Same, Future[Verdict]] | BaseException | None:
        while True:
            with suppress(Empty):
                return self._reached.get(timeout=SIGNAL_SECONDS)

    def _take(self, key: Same, future: Future[Verdict]) -> Generator[Result, None, None]:
        verdict: Verdict | NotGraded
        try:
            verdict = future.result()
        except NotGraded as error:
            verdict = error
        except CancelledError:
            verdict = Cancelled("cancelled before its turn")
        with self._lock:
            self._futures.discard(future)
            if isinstance(verdict, Verdict):
                self._kept[key] = verdict
            while len(self._kept) > KEPT_VERDICTS:
                self._kept.popitem(last=False)
            first, *others = self._waiting.pop(key)
            again = bool(others) and isinstance(verdict, Cancelled)
            if again:  # who else has this source did not cancel it
                self._waiting[key] = deque(others)
        if again:
            self._copies.release()
            self._begin(key, others[0])
        else:
            self._room.release()
        yield first, verdict
        if again:
            return
        for request in others:
            self._copies.release()
            yield request, verdict.renamed(request.submission) if isinstance(verdict, Verdict) else verdict

    def _read(self) -> None:
        try:
            for request in self._requests:
                self._add(request)
                if self._stopped:
                    return
            self._reached.put(None)
        except BaseException as error:
            self._reached.put(error)

    def _add(self, request: Request) -> None:
        key = same(request)
        with self._lock:
            copied = key in self._kept or key in self._waiting
        if copied:
            self._copies.acquire()
        else:
            self._room.acquire()
        with self._lock:
            if copied and key in self._waiting:
                self._waiting[key].append(request)
                return
            self._waiting[key] = deque([request])
        if copied:
            self._copies.release()
            self._room.acquire()
        self._begin(key, request)

    def _begin(self, key: Same, request: Request) -> None:
        """Have a request graded, or take the verdict that is kept; nothing if the caller has left."""
        with self._lock:  # `_stop` comes before, or finds the future
            if self._stopped:
                return
            future: Future[Verdict]
            if (known := self._kept.get(key)) is not None:
                future = Future()
                future.set_result(known.renamed(request.submission))
            else:
                future = self._submit(request)
            self._futures.add(future)
        future.add_done_callback(lambda done: self._reached.put((key, done)))

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            futures = list(self._futures)
        for future in futures:
            future.cancel()
        self._room.release()
        self._copies.release()
