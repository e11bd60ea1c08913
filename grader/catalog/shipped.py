"""Where the files that come with the grader lie: beside the package in a clone, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from grader.errors import GraderError

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(folder: Literal["problems", "reference_solutions", "submissions"]) -> Path:
    """The folder of that name that came with this grader."""
    for place in (_PACKAGE / "_shipped" / folder, _PACKAGE.parent / folder):
        if place.is_dir():
            return place
    raise GraderError(f"{folder}/ did not come along with {_PACKAGE}; install the grader again")
