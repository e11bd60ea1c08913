"""Paths of the pages.

File names consist of numbers and hashes, never of foreign text. They are the same in each report, so that links stay
valid.
"""

from __future__ import annotations

import hashlib

INDEX = "index.html"
FOLDERS = ("verdicts", "problems", "authors", "devices", "lists")
"""Folders of all pages except the index."""


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
    """An element's id made from foreign text."""
    return f"x{_short(text)}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
