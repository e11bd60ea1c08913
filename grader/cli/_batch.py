"""The batch of one `grader grade`: shows known verdicts, and grades each other source once."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from db import Keeper, Store
from grader.catalog.requests import Pair, Request
from grader.report.progress import BatchProgress
from grader.verdict.models import Status, Verdict

if TYPE_CHECKING:
    from grader.api import Grader

Same = tuple[str, ...]
"""What two requests with one verdict have in common."""


@dataclass
class Batch:
    """Grades requests without a stored verdict; shows and stores verdicts as they are reached."""

    grader: Grader
    store: Store
    keeper: Keeper
    progress: BatchProgress
    regrade: bool
    statuses: Counter[Status] = field(default_factory=Counter)
    reused: int = 0
    """Verdicts from the database."""
    copied: int = 0
    """Verdicts on a source that this batch had graded for another author, label or sample."""
    refused: int = 0
    _pending: deque[tuple[Request, Same]] = field(default_factory=deque)
    """Requests without a verdict, in order; the first is being graded."""
    _asked: set[Same] = field(default_factory=set)
    _graded: dict[Same, int] = field(default_factory=dict)
    """Verdict ids."""

    def grade(self, pairs: Iterable[Pair]) -> None:
        """Grade the pairs, which are read a few ahead."""
        for verdict in self.grader.grade_many(self._without_verdict(pairs)):
            request, same = self._pending.popleft()
            self._graded[same] = self._save(request, verdict)
            while self._pending and self._pending[0][1] in self._graded:
                self._copy(*self._pending.popleft())

    def refuse(self, message: str) -> None:
        """Print why a line cannot be graded; the batch continues."""
        self.refused += 1
        self.progress.say(f"grader: {message}")

    def _without_verdict(self, pairs: Iterable[Pair]) -> Iterator[Request]:
        """Requests that are to be graded; stored verdicts are shown."""
        for request in map(self.grader.request, pairs):
            stored = None if self.regrade else self._stored(request)
            same = self._same(request)
            if stored is not None:
                self.reused += 1
                self._show(stored)
            elif same in self._graded and not self._pending:
                self._copy(request, same)
            else:
                self._pending.append((request, same))
                if same not in self._asked:
                    self._asked.add(same)
                    yield request

    def _same(self, request: Request) -> Same:
        submission, problem = request.submission, request.problem
        environment, settings = self.grader.environment_for(request), self.grader.settings_for(request)
        about = (problem.id, problem.source_hash, environment.environment_hash, settings.settings_hash)
        # A file that cannot be read has no source.
        return (*about, submission.path) if submission.unreadable else (*about, submission.source_hash)

    def _stored(self, request: Request) -> Verdict | None:
        environment, settings = self.grader.environment_for(request), self.grader.settings_for(request)
        return self.store.find(request.submission, request.problem, environment, settings)

    def _copy(self, request: Request, same: Same) -> None:
        """Store the verdict on the same source under this request's names."""
        of, verdict = request.submission, self.store.get(self._graded[same]).verdict
        names = {"submission": of.name, "author": of.author, "label": of.label, "sample": of.sample}
        self.copied += 1
        self._save(request, verdict.model_copy(update={**names, "verdict_id": None}))

    def _save(self, request: Request, verdict: Verdict) -> int:
        saved = self.keeper.save(verdict, request.submission, request.problem)
        self._show(saved)
        assert saved.verdict_id is not None, "a saved verdict has an id"
        return saved.verdict_id

    def _show(self, verdict: Verdict) -> None:
        self.statuses[verdict.status] += 1
        self.progress.show(verdict)
