"""Words that the messages of several stages share."""

from __future__ import annotations

from collections.abc import Sequence

from grader.grading.outcome import MAX_LISTED


def in_backticks(items: Sequence[str]) -> str:
    """`a`, `b` and `c` in backticks; at most MAX_LISTED names and the number of others."""
    quoted = [f"`{item}`" for item in items[:MAX_LISTED]]
    if len(items) > MAX_LISTED:
        return f"{', '.join(quoted)} and {len(items) - MAX_LISTED} more"
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


def shape_text(shape: Sequence[int] | None) -> str:
    """A shape as `(2, 3)`; an unknown one as `()`."""
    return "(" + ", ".join(str(extent) for extent in shape or ()) + ")"
