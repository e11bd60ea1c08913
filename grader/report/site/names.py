"""Paths of the pages.

A file is named after its problem, author or device where that name consists of small letters, digits, `_` and `-`.
Otherwise the name is reduced to these and a hash is appended. Names are the same in each report, so that links stay
valid.
"""

from __future__ import annotations

import hashlib
import re

INDEX = "index.html"
FILTERED = "verdicts.html"
"""The filtered list of all verdicts, which a server has."""
FOLDERS = ("verdicts", "problems", "authors", "devices", "lists")
"""Folders of all pages except the index."""

_LONGEST = 80
"""Characters of a name in a file's name."""

_OTHER_USES = re.compile(r".*-[0-9a-f]{12}|con|prn|aux|nul|(com|lpt)[0-9]")
"""Names that a shortened one may have, and that Windows reserves for devices."""


def verdict_page(verdict_id: int) -> str:
    """The page of one verdict."""
    return f"verdicts/{verdict_id}.html"


def problem_page(problem: str) -> str:
    """The page of one problem with its boards."""
    return f"problems/{_readable(problem)}.html"


def author_page(author: str) -> str:
    """The page of one author."""
    return f"authors/{_readable(author)}.html"


def matrix_page(device_name: str) -> str:
    """The page with the matrix of problems and authors on one device."""
    return f"devices/{_readable(device_name)}.html"


def list_page(number: int) -> str:
    """One page of the list of all verdicts."""
    return f"lists/{number}.html"


def anchor(text: str) -> str:
    """An element's id made from foreign text."""
    return f"x{_short(text)}"


def _readable(text: str) -> str:
    reduced = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-_")[:_LONGEST]
    if reduced == text and not _OTHER_USES.fullmatch(text):
        return text
    return f"{reduced}-{_short(text)}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
