"""A cache of facts about problems, kept between commands.

Computing them needs torch, whose import takes seconds.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from grader._version import __version__
from grader.catalog.problem_facts import ProblemFacts
from grader.verdict.models import Problem
from grader.verdict.value import digest


def known_facts(problem: Problem) -> ProblemFacts:
    """The facts about a problem, from the cache if its source, torch and the grader are unchanged."""
    file = _folder() / f"{_key(problem)}.json"
    with contextlib.suppress(OSError, ValidationError):
        remembered = ProblemFacts.model_validate_json(file.read_bytes())
        return remembered.model_copy(update={"id": problem.id, "path": str(problem.path)})
    from grader.catalog.facts import facts

    result = facts(problem)
    if result.forward:  # a file that does not load may load once another package is installed
        with contextlib.suppress(OSError):
            _remember(file, result)
    return result


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grader" / "facts"


def _key(problem: Problem) -> str:
    return digest(f"{problem.source_hash}\n{__version__}\n{importlib.metadata.version('torch')}")


def _remember(file: Path, result: ProblemFacts) -> None:
    """Write a temporary file and rename it, so that a reader never sees a partial file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as written:
        written.write(result.model_dump_json())
    Path(written.name).replace(file)
