"""A request on its way through a pool, from its submission to its verdict."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from grader.catalog.requests import Request
from grader.errors import Cancelled
from grader.verdict.models import Environment, Settings, Verdict


@dataclass(eq=False)
class Task:
    """A request, the future of its verdict, and the places that were lost while they graded it."""

    number: int
    """Names the request in messages to its place; no other request of the pool has it."""
    request: Request
    priority: int = 0
    future: Future[Any] = field(default_factory=Future)
    losses: list[str] = field(default_factory=list)
    """How each process that graded it ended."""
    lost_at: set[str] = field(default_factory=set)
    """The names of the places of these processes."""
    unwanted: bool = False
    """It was stopped while a place held it, so no other place gets it if that one is lost."""

    @property
    def author(self) -> str:
        """The name that has turns in the queue."""
        return self.request.submission.author

    def begin(self) -> bool:
        """Mark it as begun, after which its future cannot be cancelled; False if that happened before."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def crashed(self, settings: Settings, environment: Environment) -> Verdict:
        """The verdict `crashed`, with how each process ended that graded it."""
        from grader.grading.messages import diagnose
        from grader.grading.record import Record

        what = f"{len(self.losses)} grading processes ended while they graded it ({'; '.join(self.losses)})"
        remedy = "look for an access out of bounds, or for memory that grows without end"
        found = diagnose("crashed", what, remedy=remedy)
        return Record(self.request, diagnoses=[found]).verdict(settings, environment)

    def cancel(self) -> None:
        """End it without a verdict. No place holds it and no queue has it."""
        self.future.cancel()
        if self.begin():  # a lost place had begun it
            self.future.set_exception(Cancelled(f"{self.request.submission.name}: cancelled"))
