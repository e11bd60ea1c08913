"""Queries for the stored verdicts that a request may reuse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import ColumnElement, Select, bindparam, select

from db.tables import verdicts
from grader.verdict.models import Environment, Problem, Settings, Status, Submission


def _newest(*conditions: ColumnElement[bool]) -> Select[tuple[int, str]]:
    """A query for the newest verdict of a request; made once, because making it takes longer than running it."""
    same = (
        verdicts.c.source_hash == bindparam("source_hash"),
        verdicts.c.problem_hash == bindparam("problem_hash"),
        verdicts.c.environment_hash.in_(bindparam("environment_hashes", expanding=True)),
        verdicts.c.settings_hash == bindparam("settings_hash"),
        verdicts.c.problem == bindparam("problem"),
        verdicts.c.status != Status.GRADER_ERROR,
    )
    found = select(verdicts.c.id, verdicts.c.document).where(*same, *conditions)
    return found.order_by(verdicts.c.id.desc()).limit(1)


OF_SUBMISSION = _newest(
    verdicts.c.author == bindparam("author"),
    verdicts.c.label.is_not_distinct_from(bindparam("label")),
    verdicts.c.sample.is_not_distinct_from(bindparam("sample")),
)
"""The newest verdict on a submission."""
LATER = _newest(verdicts.c.id > bindparam("after"))
"""The newest verdict on a source whose id is higher than `after`."""


@lru_cache(64)
def _environment_hash(environment: Environment) -> str:
    """A batch asks for the same few again and again."""
    return environment.environment_hash


@lru_cache(64)
def _settings_hash(settings: Settings) -> str:
    return settings.settings_hash


def values(
    submission: Submission, problem: Problem, environments: Sequence[Environment], settings: Settings
) -> dict[str, object]:
    """The values of both queries' parameters, but for the names and `after`."""
    return {
        "source_hash": submission.source_hash,
        "problem_hash": problem.source_hash,
        "environment_hashes": [_environment_hash(environment) for environment in environments],
        "settings_hash": _settings_hash(settings),
        "problem": submission.problem_id,
    }
