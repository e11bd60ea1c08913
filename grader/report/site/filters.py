"""Filters the list of all verdicts, as the server's page does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from urllib.parse import urlencode

from db.rows import Row
from grader.report.site import names
from grader.report.site.pages import Frame, render, security_policy
from grader.verdict.labels import LANGUAGES

PAGE_ROWS = 100
"""Verdicts on one page of a filtered list."""


@dataclass(frozen=True)
class Filter:
    """The properties of the verdicts to list; an empty text asks for nothing."""

    status: str = ""
    code: str = ""
    """The code of any of its diagnoses."""
    problem: str = ""
    author: str = ""
    device: str = ""
    """The device's name."""
    label: str = ""
    """One of `Verdict.labels` that names no language."""
    language: str = ""

    def matching(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that have all chosen properties, in their order."""
        for name, attribute in _EQUAL.items():
            wanted = getattr(self, name)
            if wanted:
                rows = [row for row in rows if getattr(row, attribute) == wanted]
        for name, attribute in _AMONG.items():
            wanted = getattr(self, name)
            if wanted:
                rows = [row for row in rows if wanted in getattr(row, attribute)]
        return rows if isinstance(rows, list) else list(rows)

    def query(self, page: int = 1) -> str:
        """The address of the list's page behind `?`."""
        chosen = [(one.name, getattr(self, one.name)) for one in fields(self) if getattr(self, one.name)]
        return urlencode([*chosen, *([("page", page)] if page > 1 else [])])


_EQUAL = {"status": "status", "problem": "problem", "author": "author", "device": "device_name"}
_AMONG = {"code": "codes", "label": "labels", "language": "labels"}

FIELDS = tuple(one.name for one in fields(Filter))


@dataclass(frozen=True)
class Choices:
    """The values of each field that some verdict has, with their number, the most frequent first."""

    by_field: dict[str, tuple[tuple[str, int], ...]]


def choices(rows: Sequence[Row]) -> Choices:
    """The choices that a form offers for these verdicts."""
    counts: dict[str, Counter[str]] = {
        name: Counter(str(getattr(row, attribute)) for row in rows) for name, attribute in _EQUAL.items()
    }
    counts["code"] = Counter(code for row in rows for code in set(row.codes))
    labels = Counter(label for row in rows for label in row.labels)
    counts["label"] = Counter({label: count for label, count in labels.items() if label not in LANGUAGES})
    counts["language"] = Counter({label: count for label, count in labels.items() if label in LANGUAGES})
    return Choices({name: tuple(counts[name].most_common()) for name in FIELDS})


def filtered_page(rows: Sequence[Row], wanted: Filter, number: int, offered: Choices, frame: Frame) -> str:
    """One page of the verdicts that match, newest first; `number` counts from 1."""
    matching = wanted.matching(rows)
    count = max(1, -(-len(matching) // PAGE_ROWS))
    number = min(max(1, number), count)
    end = len(matching) - (number - 1) * PAGE_ROWS
    return render(
        "served/verdicts.html",
        names.FILTERED,
        "All verdicts",
        frame=frame,
        policy=security_policy(form="'self'"),
        wanted=wanted,
        fields=FIELDS,
        offered=offered.by_field,
        typed=("problem", "author"),
        found=len(matching),
        of=len(rows),
        rows=matching[max(0, end - PAGE_ROWS) : end][::-1],
        number=number,
        count=count,
    )
