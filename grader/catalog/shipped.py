"""Finds the files shipped with the grader: beside the package in a clone, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from grader.errors import GraderError

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(folder: Literal["problems", "reference_solutions", "submissions", "starter"]) -> Path:
    """The shipped folder with this name. Raises GraderError if it is missing."""
    for place in (_PACKAGE / "_shipped" / folder, _PACKAGE.parent / folder):
        if place.is_dir():
            return place
    raise GraderError(f"{folder}/ is missing beside {_PACKAGE}; install the grader again")
