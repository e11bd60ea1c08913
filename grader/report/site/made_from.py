"""Records what each verdict's page was made from, so that a report rewrites only changed ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from db.rows import Row
from grader._version import __version__
from grader.report.site.pages import Frame


def site_key(frame: Frame) -> str:
    """A digest of what all pages have in common: the frame, and this package's code, templates and assets."""
    digest = hashlib.sha256(f"{__version__} {frame}".encode())
    for path in _files(files("grader.report.site")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def key(site: str, row: Row, others: Sequence[tuple[int, str]], newer: int | None, profile: int | None = None) -> str:
    """A digest of what a verdict's page is made from.

    A stored verdict does not change, so its row stands for it, and so does a profile's id.
    """
    made = f"{site} {row} {others} {newer} {profile}"
    return hashlib.sha256(made.encode(errors="surrogatepass")).hexdigest()[:16]


def read(path: Path) -> dict[str, str]:
    """The keys by page that a report left; none if there is no such report, or it is of another version."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: Path, keys: Mapping[str, str]) -> None:
    """Leave the keys for the next report."""
    path.write_text(json.dumps(keys))


def _files(folder: Traversable) -> list[Traversable]:
    found: list[Traversable] = []
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            found += _files(entry)
        elif not entry.name.endswith(".pyc"):
            found.append(entry)
    return found
