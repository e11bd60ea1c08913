"""The batch of one `grader grade`: shows known verdicts, and grades each other source once."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from db import Claims, Keeper, Store
from grader.catalog.requests import Pair, Request
from grader.report.progress import BatchProgress
from grader.verdict.models import Environment, Settings, Status, Verdict
from grader.verdict.value import digest

WAIT_SECONDS = 1.0
"""Between looks at what other graders have claimed."""
MOST_CLAIMED = 1000
"""Requests that wait for other graders; with more, no more work is read."""
REMEMBERED = 10_000
"""Verdicts of this batch whose source is remembered: about 3 MB. The database knows the others."""


class Grades(Protocol):
    """What grades: a `Grader` or a `GraderPool`."""

    waits_apart: bool
    """Whether it reads the work in a thread of its own, so that waiting for work delays no verdict."""

    def request(self, work: Pair) -> Request:
        """The request for a problem and a submission."""

    def settings_for(self, work: Request) -> Settings:
        """The settings of its verdict."""

    def environments_for(self, work: Request) -> tuple[Environment, ...]:
        """The environments that its verdict may have, the usual one first."""

    def results(self, work: Iterable[Request]) -> Generator[tuple[Request, Verdict], None, None]:
        """Verdicts as they are reached, each with its request."""


@dataclass
class Batch:
    """Grades requests without a stored verdict; shows and stores verdicts as they are reached.

    A pool reads the work in a thread of its own.
    """

    grader: Grades
    store: Store
    keeper: Keeper
    claims: Claims
    progress: BatchProgress
    regrade: bool
    statuses: Counter[Status] = field(default_factory=Counter)
    reused: int = 0
    """Verdicts from the database."""
    copied: int = 0
    """Verdicts on a source that this batch or another grader had graded meanwhile."""
    refused: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _under_way: dict[str, list[Request]] = field(default_factory=dict)
    """By claim: more requests for the verdict that is being reached."""
    _claimed: list[Request] = field(default_factory=list)
    """Requests that another grader has claimed."""
    _looked_at: float = 0.0
    """When these were looked at last."""
    _graded: OrderedDict[str, int] = field(default_factory=OrderedDict)
    """Verdict ids by claim, of the latest verdicts."""
    _newest_before: int = 0

    def __post_init__(self) -> None:
        self._newest_before = self.store.newest_id()

    def grade(self, pairs: Iterable[Pair]) -> None:
        """Grade the pairs, which are read a few ahead. What another grader has claimed is left for `finish`."""
        left = iter(pairs)
        self._grade(self._without_verdict(left))
        while len(self._claimed) >= MOST_CLAIMED:
            self.finish()
            self._grade(self._without_verdict(left))

    def finish(self) -> None:
        """Wait for what other graders have claimed, and grade what they leave."""
        if self._claimed:
            self.progress.warn(f"{len(self._claimed)} being graded by another grader; waiting for its verdicts")
        while self._claimed:
            self._grade(self._left_by_others())
            if self._claimed:
                time.sleep(WAIT_SECONDS)

    def refuse(self, message: str) -> None:
        """Print why a line cannot be graded; the batch continues."""
        self.refused += 1
        self.progress.warn(message)

    def _grade(self, requests: Iterable[Request]) -> None:
        for request, verdict in self.grader.results(requests):
            key = self._key(request)
            with self._lock:
                verdict_id = self._save(request, verdict, claim=key)
                self._graded[key] = verdict_id
                if len(self._graded) > REMEMBERED:
                    self._graded.popitem(last=False)
                for other in self._under_way.pop(key):
                    self._copy(other, verdict)

    def _without_verdict(self, pairs: Iterable[Pair]) -> Iterator[Request]:
        """Requests that are to be graded; known verdicts are shown."""
        for pair in pairs:
            request = self.grader.request(pair)
            if self._to_grade(request):
                yield request
            if len(self._claimed) >= MOST_CLAIMED:
                return
            if self._claimed and time.monotonic() > self._looked_at:
                yield from self._left_by_others()

    def _left_by_others(self) -> Iterator[Request]:
        """Requests whose claims have ended without a verdict."""
        with self._lock:
            claimed, self._claimed = self._claimed, []
        self._looked_at = time.monotonic() + WAIT_SECONDS
        for request in claimed:
            if self._to_grade(request):
                yield request

    def _to_grade(self, request: Request) -> bool:
        """Whether to grade it now; else its verdict is shown, or comes with another request's."""
        key = self._key(request)
        with self._lock:
            self.keeper.check()
            if not self.regrade and (stored := self._stored(request)) is not None:
                self.reused += 1
                self._show(stored)
            elif key in self._under_way:
                self._under_way[key].append(request)
            elif key in self._graded:
                self._copy(request, self.store.get(self._graded[key]).verdict)
            elif not self.claims.take(key):
                self._claimed.append(request)
            elif (later := self._graded_meanwhile(request)) is not None:
                self.claims.release(key)
                self._take(request, later)
            else:
                self._under_way[key] = []
                return True
        return False

    def _key(self, request: Request) -> str:
        """What two requests with one verdict have in common."""
        submission, problem = request.submission, request.problem
        environment, settings = self.grader.environments_for(request)[0], self.grader.settings_for(request)
        # A file that cannot be read has no source.
        text = submission.path if submission.unreadable else submission.source_hash
        about = (problem.id, problem.source_hash, environment.environment_hash, settings.settings_hash, text)
        return digest("\n".join(about))

    def _stored(self, request: Request) -> Verdict | None:
        environments, settings = self.grader.environments_for(request), self.grader.settings_for(request)
        return self.store.find(request.submission, request.problem, environments, settings)

    def _graded_meanwhile(self, request: Request) -> Verdict | None:
        """A verdict on the same source that was stored since this batch began."""
        environments, settings = self.grader.environments_for(request), self.grader.settings_for(request)
        return self.store.find_later(
            request.submission, request.problem, environments, settings, after=self._newest_before
        )

    def _take(self, request: Request, verdict: Verdict) -> None:
        """Show another grader's verdict: its own if it is on this submission, else a copy."""
        if verdict.submission == request.submission.name and verdict.sample == request.submission.sample:
            self.reused += 1
            self._show(verdict)
        else:
            self._copy(request, verdict)

    def _copy(self, request: Request, verdict: Verdict) -> None:
        """Store the verdict on the same source under this request's names."""
        self.copied += 1
        self._save(request, verdict.renamed(request.submission))

    def _save(self, request: Request, verdict: Verdict, claim: str | None = None) -> int:
        saved = self.keeper.save(verdict, request.submission, request.problem, claim)
        self._show(saved)
        assert saved.verdict_id is not None, "a saved verdict has an id"
        return saved.verdict_id

    def _show(self, verdict: Verdict) -> None:
        self.statuses[verdict.status] += 1
        self.progress.show(verdict)
