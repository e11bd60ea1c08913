"""Paths of the pages.

File names are made from numbers and hashes, never from foreign text, and stay the same from one report to the next, so
that links to them last.
"""

from __future__ import annotations

import hashlib

INDEX = "index.html"
FOLDERS = ("verdicts", "problems", "authors", "devices", "lists")
"""Everything but the index lies in one of these."""


def verdict_page(verdict_id: int) -> str:
    """The page of one verdict."""
    return f"verdicts/{verdict_id}.html"


def problem_page(problem: str) -> str:
    """The page of one problem with its boards."""
    return f"problems/p-{_short(problem)}.html"


def author_page(author: str) -> str:
    """The page of one author."""
    return f"authors/a-{_short(author)}.html"


def matrix_page(device_name: str) -> str:
    """The page with the matrix of problems and authors on one device."""
    return f"devices/d-{_short(device_name)}.html"


def list_page(number: int) -> str:
    """One page of the list of all verdicts."""
    return f"lists/{number}.html"


def anchor(text: str) -> str:
    """An element's id for a stranger's text."""
    return f"x{_short(text)}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
