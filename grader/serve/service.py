"""Grades the batches that a server takes, on a pool, in fair order; they survive a restart."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Self

from db import Claims, Keeper, Store
from db.batches import CANCELLED, Batches, NewLine, Waiting
from db.presence import RunProgress
from db.profiles import save_profile
from grader.batch import Batch
from grader.batch.reached import Reached
from grader.catalog.requests import Pair, RequestReader
from grader.errors import Cancelled, GraderError, NotGraded, UserError
from grader.pool import GraderPool
from grader.serve.waiting import WaitingLines
from grader.verdict.batch_state import BatchState
from grader.verdict.models import Verdict
from grader.verdict.profiles import Profile

KEPT_DAYS = 30.0
"""After so many days a batch that has ended is forgotten; its verdicts stay."""
FORGET_SECONDS = 86_400.0
"""Between looks for such batches."""
LOOK_SECONDS = 1.0
"""Between looks at what another process has cancelled."""


class GradingService:
    """A context manager whose threads grade what was taken; leaving it drops what is being graded.

    What waits is in the database: a server that is started again goes on with it.
    """

    def __init__(
        self, database: str, reader: RequestReader, open_pool: Callable[[], GraderPool], say: Callable[[str], None]
    ) -> None:
        """`reader` reads lines; the pool is opened for the first, or a profile; `say` prints a line for the user."""
        self._reader, self._open_pool, self._say = reader, open_pool, say
        self.store = Store.open(database)
        self.batches = Batches(self.store)
        self._changed = threading.Condition()
        self._closing = self._pool_wanted = False
        self._lines = WaitingLines()
        self._reached = Reached()
        self.fault: str | None = None
        """Why nothing can be graded any more."""
        self.pool: GraderPool | None = None
        self._batch: Batch[Waiting] | None = None
        self._threads = [threading.Thread(target=work) for work in (self._work, self._watch)]

    def __enter__(self) -> Self:
        self._add(list(self.batches.waiting()))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            pool = self.pool
            self._changed.notify_all()
        self._lines.close()
        if pool is not None:
            pool.close()
        for thread in self._threads:
            thread.join()
        self.store.close()

    # ----------------------------------------------------------------------------------------------- for requests

    def take(
        self, owner: str, key: str | None, digest: str, priority: int, lines: Sequence[NewLine]
    ) -> tuple[str, bool]:
        """The id of a batch, and whether it is new; an owner's repeated key gives the batch that it named.

        Raises QueueFull, and UserError for a key that named other lines.
        """
        known = None if key is None else self.batches.of_key(owner, key)
        if known is None:
            self._lines.check_room(owner, len(lines))
            batch_id, waiting = self.batches.add(owner, key, digest, priority, lines)
            if waiting is not None:
                self._add(waiting)
                return batch_id, True
            # Another request has sent the key meanwhile.
            known = (key and self.batches.of_key(owner, key)) or (batch_id, digest)
        if known[1] != digest:
            raise UserError("this key was sent before with other lines; use a new key for them")
        return known[0], False

    def cancel(self, batch_id: str) -> None:
        """End the lines of a batch that have not ended, what runs at its next job."""
        gone = self._lines.remove(lambda line: line.batch_id == batch_id)
        ended = {*self.batches.waiting_of(batch_id), *(line.id for line in gone)}
        self._end(batch_id, sorted(ended), message=CANCELLED)
        self._stop(ended)

    def profile(self, pair: Pair) -> Profile:
        """The profile of one submission, stored.

        Raises UserError, NotGraded, and GraderError if the server stops.
        """
        self._want_pool()
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self.fault or self.pool)
            if self._closing or self.fault or self.pool is None:
                raise GraderError(self.fault or "the server stops; ask again")
            pool = self.pool
        profile = pool.profile(pair)
        save_profile(self.store, profile)
        return profile

    def version(self, batch_id: str) -> int:
        """Changes when a line of the batch ends; the same for all that have ended, of which nothing is kept."""
        return self._lines.left(batch_id)

    def is_under_way(self, batch_id: str) -> bool:
        """Whether a line of the batch is being graded."""
        return any(line.batch_id == batch_id for line in self._lines.under_way())

    def state(self, batch_id: str) -> BatchState | None:
        """A batch in numbers."""
        return self.batches.find(batch_id)

    @property
    def waiting(self) -> int:
        """Lines that wait."""
        return len(self._lines)

    @property
    def under_way(self) -> int:
        """Lines that are being graded, or come next."""
        return len(self._lines.under_way())

    def _doing(self) -> RunProgress:
        return self._reached.work(self.waiting + self.under_way)

    # ------------------------------------------------------------------------------------------ as a batch's audience

    def show(self, verdict: Verdict, tag: Waiting) -> None:
        """A line has its verdict."""
        self._end(tag.batch_id, [tag.id], verdict_id=verdict.verdict_id)
        self._reached.note(verdict.status)
        self._lines.put_down(tag)

    def drop(self, reason: NotGraded, tag: Waiting) -> None:
        """A line gets no verdict."""
        self._end(tag.batch_id, [tag.id], message=CANCELLED if isinstance(reason, Cancelled) else str(reason))
        self._reached.note(None)
        self._lines.put_down(tag)

    def warn(self, message: str) -> None:
        """Print a line for the user."""
        self._say(f"grader: {message}")

    # ------------------------------------------------------------------------------------------------ the threads

    def _work(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._pool_wanted)
            if self._closing:
                return
        with suppress(SystemExit):
            try:
                self._grade()
            except Exception as error:
                if not self._is_closing():
                    with self._changed:
                        self.fault = str(error) or type(error).__name__
                        self._changed.notify_all()
                    self.warn(f"nothing is graded any more: {self.fault}; what waits is kept for the next start")

    def _grade(self) -> None:
        with self.store.run(sys.argv[1:], self.warn) as run, self._open_pool() as pool:
            with self._changed:
                self.pool = pool
                self._changed.notify_all()
            self._reached.places = pool.places
            claims = Claims(self.store, run, self.warn, status=self._doing, cancelled=self._asked_to_cancel)
            with claims:
                keeper = Keeper(self.store, run, self.warn)
                keeper.take_over()
                batch = Batch(pool, self.store, keeper, claims, self, priority=lambda line: line.priority)
                self._batch = batch
                try:
                    batch.grade(self._work_left())
                except GraderError:
                    if self._is_closing():
                        raise SystemExit from None  # recorded as interrupted
                    raise
                finally:
                    self._batch = None

    def _work_left(self) -> Iterator[tuple[Pair, Waiting] | None]:
        """The requests to grade next, until the server stops; None every second."""
        while not self._is_closing():
            line = self._lines.take(LOOK_SECONDS)
            pair = None if line is None else self._pair(line)
            yield None if line is None or pair is None else (pair, line)

    def _pair(self, line: Waiting) -> Pair | None:
        text = self.batches.text(line.id)
        try:
            if text is not None:
                return self._reader.from_json(text.encode(), {})
            self._lines.ended(line.batch_id, [line.id])  # by another process
        except UserError as error:
            self._end(line.batch_id, [line.id], message=str(error))
        self._lines.put_down(line)
        return None

    def _watch(self) -> None:
        """Notice what another process has cancelled in the database, and forget old batches."""
        forget_at = time.monotonic()
        while not self._is_closing(LOOK_SECONDS):
            ids = [line.id for line in self._lines.under_way()]
            with suppress(GraderError):
                if time.monotonic() >= forget_at:
                    self.batches.forget_older(KEPT_DAYS)
                    forget_at = time.monotonic() + FORGET_SECONDS
                ended = self.batches.ended_of(ids)
                self._stop({line.id for line in self._lines.under_way() if line.id in ended})

    def _is_closing(self, within: float = 0.0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, within)

    def _asked_to_cancel(self, author: str | None) -> None:
        """End what `grader cancel` named: an author's lines, or all that this server has."""
        gone = self._lines.remove(lambda line: author in (None, line.author))
        gone += [line for line in self._lines.under_way() if author in (None, line.author)]
        for batch_id in {line.batch_id for line in gone}:
            self._end(batch_id, [line.id for line in gone if line.batch_id == batch_id], message=CANCELLED)
        self._stop({line.id for line in gone})

    def _stop(self, line_ids: set[int]) -> None:
        batch = self._batch
        if batch is not None and line_ids:
            batch.cancel(lambda _, line: line.id in line_ids)

    def _add(self, lines: Sequence[Waiting]) -> None:
        self._lines.add(lines)
        if lines:
            self._want_pool()

    def _want_pool(self) -> None:
        with self._changed:
            self._pool_wanted = True
            self._changed.notify_all()

    def _end(
        self, batch_id: str, ids: Sequence[int], *, verdict_id: int | None = None, message: str | None = None
    ) -> None:
        self.store.patiently(lambda: self.batches.end(ids, verdict_id=verdict_id, message=message), self._say)
        self._lines.ended(batch_id, ids)
