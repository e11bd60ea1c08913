"""A request on its way through a batch, with what its verdict is found by."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Generic, TypeVar

from db import Store
from grader.catalog.requests import Request
from grader.verdict.models import Environment, Settings, Verdict
from grader.verdict.value import digest

T = TypeVar("T")


class Ticket(Generic[T]):
    """One request; `tag` is what the caller knows it by."""

    def __init__(self, request: Request, tag: T, environments: tuple[Environment, ...], settings: Settings) -> None:
        self.request, self.tag = request, tag
        self._environments, self._settings = environments, settings

    @cached_property
    def key(self) -> str:
        """The key that requests with the same verdict share."""
        submission, problem = self.request.submission, self.request.problem
        text = submission.unreadable or submission.source_hash
        return digest(
            "\n".join((problem.id, problem.source_hash, _circumstances(self._environments[0], self._settings), text))
        )

    def stored(self, store: Store) -> Verdict | None:
        """The newest verdict on this submission."""
        return store.find(self.request.submission, self.request.problem, self._environments, self._settings)

    def stored_after(self, store: Store, newest: int) -> Verdict | None:
        """A verdict on the same source, by any author, whose id is higher."""
        submission, problem = self.request.submission, self.request.problem
        return store.find_later(submission, problem, self._environments, self._settings, after=newest)


@lru_cache(64)
def _circumstances(environment: Environment, settings: Settings) -> str:
    """A batch asks for the same few again and again."""
    return f"{environment.environment_hash}\n{settings.settings_hash}"
