"""Formats values for the pages. An absent value is a dash, never a zero."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest

from markupsafe import Markup, escape

from grader.report.console import clean
from grader.verdict.models import Status
from grader.verdict.stages import TensorCheck

ABSENT = "–"

TONES: dict[str, tuple[str, str]] = {
    Status.CORRECT: ("good", "✓"),
    Status.MISSING_BACKWARD: ("warn", "◐"),
    Status.WRONG_BACKWARD: ("bad", "✗"),
    Status.WRONG_OUTPUT: ("bad", "✗"),
    Status.INTEGRITY_VIOLATION: ("bad", "⚑"),
    Status.NOT_RUN: ("out", "○"),
    Status.GRADER_ERROR: ("out", "○"),
    "passed": ("good", "✓"),
    "failed": ("bad", "✗"),
    "missing": ("warn", "◐"),
}
"""Colour and mark of a status. The mark and the word distinguish statuses without colours."""


def tone(status: str) -> str:
    """The class that colours a status."""
    return TONES.get(status, ("dim", ""))[0]


@lru_cache(1024)
def badge(status: str, text: str | None = None) -> Markup:
    """A status as a coloured word with its mark; `text` stands instead of the word."""
    mark = TONES.get(status, ("", "▲" if status in set(Status) else "·"))[1]
    return Markup('<span class="status {}"><span aria-hidden="true">{}&nbsp;</span>{}</span>').format(
        tone(status), mark, text or words(clean(status))
    )


def words(status: str) -> str:
    """A status in words: `missing backward`."""
    return status.replace("_", " ")


def times(value: float | None) -> str:
    """A speedup: `2.31×`, `0.031×`."""
    if value is None or not math.isfinite(value):
        return ABSENT
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.995 else 3
    return f"{value:.{digits}f}×"


def interval(low: float | None, high: float | None) -> str:
    """Both ends of an interval, with as many digits as are needed to distinguish them."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ABSENT
    apart = -math.log10(high - low) if high > low else 0
    digits = min(4, max(0 if low >= 100 else 1 if low >= 10 else 2 if low >= 0.995 else 3, math.ceil(apart)))
    return f"{low:.{digits}f} to {high:.{digits}f}×"


def power(value: float) -> str:
    """A power of two on an axis: `4×`, `1/4×`."""
    return f"{value:.0f}×" if value >= 1 else f"1/{1 / value:.0f}×"


def percent(share: float | None) -> str:
    """A share as `41%`; only an exact 0 or 1 is shown as 0% or 100%."""
    if share is None or not math.isfinite(share):
        return ABSENT
    if 0 < share < 0.01:
        return "<1%"
    # Halves round up, as in site.js; Python's round() would round them to even.
    return ">99%" if 0.99 < share < 1 else f"{math.floor(share * 100 + 0.5)}%"


def fine_percent(share: float | None) -> str:
    """A share with two significant digits below one percent: `0.23%`."""
    return f"{share * 100:.2g}%" if share is not None and 0 < share < 0.01 else percent(share)


def figure(value: float | None, digits: int = 3) -> str:
    """Any other number, with `digits` significant digits."""
    return ABSENT if value is None else f"{value:.{digits}g}"


def milliseconds(value: float | None) -> str:
    """A time in milliseconds, with four significant digits."""
    return ABSENT if value is None else f"{value:.4g}"


def mebibytes(value: int) -> str:
    """An amount of memory in MiB."""
    return f"{value / 2**20:,.0f} MiB"


def shape(value: Sequence[int] | None) -> str:
    """A shape or an index."""
    return ABSENT if value is None else "[" + ", ".join(map(str, value)) + "]"


def moment(iso: str) -> str:
    """`2026-01-01 12:00`, UTC."""
    return iso[:16].replace("T", " ")


def clock_time(iso: str) -> str:
    """`12:00:05`, UTC."""
    return iso[11:19]


def yes(value: bool | None) -> str:
    """`yes` or `no`; a dash if unknown."""
    return ABSENT if value is None else "yes" if value else "no"


def side_by_side(candidate: Sequence[float], reference: Sequence[float]) -> list[tuple[float | None, float | None]]:
    """Pairs of samples; the shorter list is filled up with None."""
    return list(zip_longest(candidate, reference))


def breakable(name: str) -> Markup:
    """A long name with possible line breaks after its underscores."""
    return Markup("_<wbr>").join(escape(part) for part in clean(name).split("_"))


def prose(text: str) -> Markup:
    """A sentence with names in backticks as HTML."""
    parts = clean(text).split("`")
    if len(parts) % 2 == 0:
        return escape(clean(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if position % 2 else escape(part) for position, part in enumerate(parts)
    )


def check_rows(tensors: Iterable[TensorCheck], explained: bool) -> Markup:
    """One row per tensor: its errors and its worst element, and its message if `explained`.

    Made as text: a verdict has dozens of them, and a template takes several times as long.
    """
    return Markup("\n".join(_row(one, explained) for one in tensors))


def _row(one: TensorCheck, explained: bool) -> str:
    size = f'<br><span class="note">{shape(one.shape)}</span>' if one.shape is not None else ""
    why = f'<td class="why">{prose(one.message or "")}</td>' if explained else ""
    return (
        f'<tr><th scope="row"><code>{html.escape(clean(one.name))}</code>{size}</th><td>{badge(one.status)}</td>'
        f'<td class="num">{figure(one.rel_rms_error)}</td><td class="num">{figure(one.baseline_rel_rms_error)}</td>'
        f'<td>{shape(one.worst_index)}</td><td class="num">{figure(one.worst_candidate, 6)}</td>'
        f'<td class="num">{figure(one.worst_reference, 6)}</td>'
        f"<td>{yes(one.passes_1e_4)}, {yes(one.passes_1e_2)}</td>{why}</tr>"
    )
