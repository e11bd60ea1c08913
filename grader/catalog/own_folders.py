"""The grader's own folders: those that it ships, and what it keeps between commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from grader.errors import GraderError

_PACKAGE = Path(__file__).resolve().parents[1]


def cache_folder(name: str) -> Path:
    """The folder for what is kept between commands: `$XDG_CACHE_HOME/grader/NAME`, or under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grader" / name


def shipped(folder: Literal["problems", "reference_solutions", "submissions", "starter"]) -> Path:
    """The shipped folder with this name. Raises GraderError if it is missing."""
    for place in (_PACKAGE / "_shipped" / folder, _PACKAGE.parent / folder):
        if place.is_dir():
            return place
    raise GraderError(f"{folder}/ is missing beside {_PACKAGE}; install the grader again")
