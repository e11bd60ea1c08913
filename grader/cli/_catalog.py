"""The problems that a command offers: shipped, remembered, and named with --problems."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from grader.catalog.problems import Catalog, find_problems
from grader.catalog.remembered_folders import remembered
from grader.errors import printable


def offered(folders: Iterable[Path] | None) -> Catalog:
    """Problems from the shipped, the registered and the given folders; later ones replace earlier ones."""
    return find_problems([*_remembered(), *(folders or ())])


def to_check(folders: Iterable[Path] | None, *, with_shipped: bool) -> Catalog:
    """The problems in the folders only, plus the shipped ones if requested; without either, as `offered`."""
    if not folders and not with_shipped:
        return offered(None)
    return find_problems(folders or (), with_shipped=with_shipped)


def _remembered() -> Iterator[Path]:
    """The remembered folders that exist; a missing one is named on stderr."""
    for folder in remembered():
        if folder.is_dir():
            yield folder
        else:
            name = printable(folder)
            print(f"{name}: remembered, but not there; `grader problems remove {name}` forgets it", file=sys.stderr)
