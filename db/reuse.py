"""Queries for the stored verdicts that a request may reuse.

They are SQL as SQLite reads it: a batch of known submissions consists of little else, and building a query takes many
times as long as running it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from grader.verdict.models import Environment, Problem, Settings, Status, Submission

_SAME = f"""
    select id, document from verdicts
    where source_hash = :source_hash and problem_hash = :problem_hash
      and settings_hash in (select value from json_each(:settings_hashes))
      and environment_hash in (select value from json_each(:environment_hashes))
      and problem = :problem and status != '{Status.GRADER_ERROR}'
"""
_NEWEST = "order by id desc limit 1"
OF_SUBMISSION = f"{_SAME} and author = :author and label is :label and sample is :sample {_NEWEST}"
"""The newest verdict on a submission."""
LATER = f"{_SAME} and id > :after {_NEWEST}"
"""The newest verdict on a source whose id is higher than `after`."""


@lru_cache(64)
def _environment_hash(environment: Environment) -> str:
    """A batch asks for the same few again and again."""
    return environment.environment_hash


@lru_cache(64)
def _settings_hashes(settings: Settings) -> str:
    return json.dumps([one.settings_hash for one in (settings, *settings.of_fewer_rows)])


def values(
    submission: Submission, problem: Problem, environments: Sequence[Environment], settings: Settings
) -> dict[str, object]:
    """The values of both queries' parameters, but for the names and `after`."""
    return {
        "source_hash": submission.source_hash,
        "problem_hash": problem.source_hash,
        "environment_hashes": json.dumps([_environment_hash(environment) for environment in environments]),
        "settings_hashes": _settings_hashes(settings),
        "problem": submission.problem_id,
    }
