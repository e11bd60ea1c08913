"""One batch: shows known verdicts, grades each other source once, and stores what is reached."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from db import Claims, Keeper, Store
from grader.api import GradesRequests
from grader.batch.ticket import Ticket
from grader.catalog.requests import Pair, Request
from grader.errors import Cancelled, ClaimLost, NotGraded
from grader.verdict.models import Status, Submission, Verdict

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

WAIT_SECONDS = 1.0
"""Between looks at what other graders have claimed."""
MOST_CLAIMED = 1000
"""Requests that wait for other graders; with more, no more work is read."""
MOST_COPIES = 1000
"""Requests that wait for the verdict on the same source; with more, no more work is read."""
REMEMBERED = 10_000
"""Verdicts of this batch whose source is remembered: about 3 MB. The database knows the others."""


class Audience(Protocol[T_contra]):
    """The receiver of verdicts, each with the tag that the caller gave with the work.

    Any thread may call it.
    """

    def show(self, verdict: Verdict, tag: T_contra) -> None:
        """A verdict, stored."""

    def drop(self, reason: NotGraded, tag: T_contra) -> None:
        """There will be no verdict."""

    def warn(self, message: str) -> None:
        """A line for the user."""


class Batch(Generic[T]):
    """Grades requests without a stored verdict; shows and stores verdicts as they are reached.

    A pool reads the work in a thread of its own; any thread may cancel.
    """

    def __init__(
        self,
        grader: GradesRequests,
        store: Store,
        keeper: Keeper,
        claims: Claims,
        audience: Audience[T],
        *,
        regrade: bool = False,
        priority: Callable[[T], int] = lambda _: 0,
    ) -> None:
        """`priority` is that of the work with a tag, wherever it waits in the grader."""
        self._grader, self._store, self._keeper, self._claims = grader, store, keeper, claims
        self._audience, self._regrade, self._priority = audience, regrade, priority
        self.statuses = Counter[Status]()
        self.reused = 0
        """Verdicts from the database."""
        self.copied = 0
        """Verdicts on a source that this batch or another grader had graded meanwhile."""
        self.dropped = 0
        """Requests that ended without a verdict."""
        self._lock = threading.RLock()
        self._under_way: dict[str, list[Ticket[T]]] = {}
        """Receivers of the verdict that is being reached, by claim."""
        self._graded_for: dict[str, Request] = {}
        """The request that is being graded, by claim."""
        self._claimed: list[Ticket[T]] = []
        """Submissions that another grader has claimed."""
        self._looked_at = 0.0
        """Time of the last look at these."""
        self._graded = OrderedDict[str, int]()
        """Verdict ids by claim, of the latest verdicts."""
        self._ended = False
        """Whether the work has been read to its end."""
        self._newest_before = store.extent()[1]
        self._cancelled_authors = set[str]()

    def grade(self, work: Iterable[tuple[Pair, T] | None]) -> None:
        """Grade the work, which is read a few ahead; None means that there is none just now.

        What another grader has claimed is left for `finish`.
        """
        left = iter(work)
        self._ended = False
        while not self._ended:
            self._grade(self._without_verdict(left))
            if len(self._claimed) >= MOST_CLAIMED:
                self.finish()

    def finish(self) -> None:
        """Wait for what other graders have claimed, and grade what they leave."""
        if self._claimed:
            self._audience.warn(f"{len(self._claimed)} being graded by another grader; waiting for its verdicts")
        while self._claimed:
            self._grade(self._left_by_others())
            if self._claimed:
                time.sleep(WAIT_SECONDS)

    def cancel(self, unwanted: Callable[[Submission, T], bool]) -> None:
        """End what is under way and unwanted, what runs at its next job; copies for others are still graded."""
        with self._lock:
            gone = [ticket for ticket in self._claimed if unwanted(ticket.request.submission, ticket.tag)]
            self._claimed = [ticket for ticket in self._claimed if ticket not in gone]
            stopped = []
            for key, tickets in self._under_way.items():
                ended = [ticket for ticket in tickets if unwanted(ticket.request.submission, ticket.tag)]
                self._under_way[key] = [ticket for ticket in tickets if ticket not in ended]
                gone += ended
                if ended and not self._under_way[key]:
                    stopped.append(self._graded_for[key])
        for request in stopped:
            self._grader.stop(request)
        for ticket in gone:
            self._cancelled(ticket)

    def cancel_author(self, author: str) -> None:
        """End what an author has in this batch, and leave out what is still to be read."""
        self._cancelled_authors.add(author)
        self.cancel(lambda submission, _: submission.author == author)

    def _grade(self, requests: Iterable[Request]) -> None:
        for request, verdict in self._grader.results(requests):
            with self._lock:
                key = next(key for key, graded in self._graded_for.items() if graded is request)
                del self._graded_for[key]
                tickets = self._under_way.pop(key)
                if isinstance(verdict, Verdict) and tickets:
                    self._store_for(key, tickets, verdict)
                else:
                    self._claims.release(key)
                if isinstance(verdict, Cancelled):
                    self._claimed += tickets  # came after it was stopped: their turn comes again
                    tickets = []
            if isinstance(verdict, NotGraded):
                for ticket in tickets:
                    self._drop(verdict, ticket.tag)

    def _store_for(self, key: str, tickets: list[Ticket[T]], verdict: Verdict) -> None:
        """Store the verdict for everyone who waits for it; the first was graded, unless that one was cancelled.

        If another grader, which took over the claim, has stored its own, they wait for that one.
        """
        first, *others = tickets
        try:
            saved = self._save(first, verdict.renamed(first.request.submission), claim=key)
        except ClaimLost:
            self._claimed += tickets
            return
        if saved.status is not Status.GRADER_ERROR:  # the next line with this source is a new try
            self._graded[key] = saved.verdict_id or 0
        if len(self._graded) > REMEMBERED:
            self._graded.popitem(last=False)
        for other in others:
            self._take(other, saved)

    def _without_verdict(self, work: Iterator[tuple[Pair, T] | None]) -> Iterator[Request]:
        """Requests that are to be graded; known verdicts are shown."""
        for item in work:
            if item is not None:
                pair, tag = item
                self._claims.wait_turn()
                request = replace(self._grader.request(pair), priority=self._priority(tag))
                ticket = self._ticket(request, tag)
                if self._to_grade(ticket):
                    yield ticket.request
            if len(self._claimed) >= MOST_CLAIMED or self._is_full_of_copies():
                return
            if self._claimed and time.monotonic() > self._looked_at:
                yield from self._left_by_others()
        self._ended = True

    def _is_full_of_copies(self) -> bool:
        with self._lock:
            return sum(map(len, self._under_way.values())) >= MOST_COPIES + len(self._under_way)

    def _left_by_others(self) -> Iterator[Request]:
        """Requests whose claims have ended without a verdict."""
        with self._lock:
            claimed, self._claimed = self._claimed, []
        self._looked_at = time.monotonic() + WAIT_SECONDS
        for ticket in claimed:
            if self._to_grade(ticket):
                yield ticket.request

    def _to_grade(self, ticket: Ticket[T]) -> bool:
        """Whether to grade it now; else it is dropped, or its verdict is shown, or comes with another request's."""
        key = ticket.key
        with self._lock:
            self._keeper.check()
            if ticket.request.submission.author in self._cancelled_authors:
                self._cancelled(ticket)
            elif not self._regrade and (stored := ticket.stored(self._store)) is not None:
                self._reuse(ticket, stored)
            elif key in self._under_way:
                self._under_way[key].append(ticket)
            elif key in self._graded:
                self._take(ticket, self._store.get(self._graded[key]).verdict)
            elif not self._claims.take(key):
                self._claimed.append(ticket)
            elif (later := ticket.stored_after(self._store, self._newest_before)) is not None:
                self._claims.release(key)
                self._take(ticket, later)
            else:
                self._under_way[key] = [ticket]
                self._graded_for[key] = ticket.request
                return True
        return False

    def _ticket(self, request: Request, tag: T) -> Ticket[T]:
        return Ticket(request, tag, self._grader.environments_for(request), self._grader.settings_for(request))

    def _take(self, ticket: Ticket[T], verdict: Verdict) -> None:
        """Show a verdict on the same source: itself if it is on this submission, else a copy."""
        submission = ticket.request.submission
        if verdict.submission == submission.name and verdict.sample == submission.sample:
            self._reuse(ticket, verdict)
        else:
            self._copy(ticket, verdict)

    def _reuse(self, ticket: Ticket[T], verdict: Verdict) -> None:
        self.reused += 1
        self._show(ticket, verdict)

    def _copy(self, ticket: Ticket[T], verdict: Verdict) -> None:
        """Store the verdict on the same source under this request's names."""
        self.copied += 1
        self._save(ticket, verdict.renamed(ticket.request.submission))

    def _save(self, ticket: Ticket[T], verdict: Verdict, claim: str | None = None) -> Verdict:
        request = ticket.request
        saved = self._keeper.save(verdict, request.submission, request.problem, claim)
        self._show(ticket, saved)
        return saved

    def _show(self, ticket: Ticket[T], verdict: Verdict) -> None:
        self.statuses[verdict.status] += 1
        self._audience.show(verdict, ticket.tag)

    def _cancelled(self, ticket: Ticket[T]) -> None:
        self._drop(Cancelled(f"{ticket.request.submission.name}: cancelled"), ticket.tag)

    def _drop(self, reason: NotGraded, tag: T) -> None:
        self.dropped += 1
        self._audience.drop(reason, tag)
