"""The problems that a command offers: shipped, remembered, and named with --problems."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from grader.catalog.problems_and_submissions import Catalog, find_problems
from grader.catalog.remembered_folders import remembered


def offered(folders: Iterable[Path] | None) -> Catalog:
    """A remembered folder that is gone is named on stderr and otherwise passed over."""
    found = []
    for folder in remembered():
        if folder.is_dir():
            found.append(folder)
        else:
            print(f"{folder}: remembered, but not there; `grader problems remove {folder}` forgets it", file=sys.stderr)
    return find_problems([*found, *(folders or ())])
