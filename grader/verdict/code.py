"""A diagnosis code: its stage, meaning, remedy, severity and status."""

from __future__ import annotations

from typing import Literal, NamedTuple

from grader.verdict.models import Status

Severity = Literal["error", "warning", "info"]


class Code(NamedTuple):
    """The meaning of a diagnosis code."""

    stage: str
    """The stage that reports it, unless a diagnosis names another."""
    meaning: str
    remedy: str
    severity: Severity = "error"
    """The usual severity; a diagnosis may have another."""
    status: Status | None = None
    """The verdict's status when this code is reported. None: an error gives its stage's status, the rest gives none."""
