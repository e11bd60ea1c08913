"""Facts about problems that are known: the shipped problems', and a cache kept between commands.

Computing them needs torch, whose import takes seconds.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping
from functools import cache

from pydantic import TypeAdapter, ValidationError

from grader._version import __version__
from grader.catalog.files import replace
from grader.catalog.own_folders import cache_folder, shipped
from grader.catalog.problem_facts import ProblemFacts
from grader.verdict.models import Problem
from grader.verdict.value import digest

FACTS_FILE = "facts.json"
"""Facts about the shipped problems, beside them."""


def known_facts(problem: Problem) -> ProblemFacts:
    """The facts about a problem.

    They are known if it is shipped, or if its source, torch and the grader are unchanged.
    """
    shipped_facts = _shipped().get(problem.source_hash)
    if shipped_facts is not None:
        return shipped_facts.model_copy(update={"id": problem.id, "path": str(problem.path)})
    key = digest(f"{problem.source_hash}\n{__version__}\n{importlib.metadata.version('torch')}")
    file = cache_folder("facts") / f"{key}.json"
    with contextlib.suppress(OSError, ValidationError):
        remembered = ProblemFacts.model_validate_json(file.read_bytes())
        return remembered.model_copy(update={"id": problem.id, "path": str(problem.path)})
    from grader.catalog.facts import facts

    result = facts(problem)
    if result.forward:  # a file that does not load may load once another package is installed
        with contextlib.suppress(OSError):
            replace(file, result.model_dump_json())
    return result


@cache
def _shipped() -> Mapping[str, ProblemFacts]:
    """The facts about the shipped problems by the hash of their source, from `scripts/shipped_facts.py`."""
    file = shipped("problems") / FACTS_FILE
    return TypeAdapter(dict[str, ProblemFacts]).validate_json(file.read_bytes()) if file.exists() else {}
