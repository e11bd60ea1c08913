"""A batch on a server in numbers."""

from __future__ import annotations

from grader.verdict.value import Value


class BatchState(Value):
    """The state of a batch."""

    id: str
    owner: str
    """The author whose token sent it; `*` for the server's own token."""
    priority: int
    created_at: str
    lines: int
    ended: int
    """Lines with a verdict, and lines without one that will get none."""
    without_verdict: int
    """Lines that were refused, cancelled or stopped."""
    statuses: dict[str, int]
    """Verdicts by status."""

    @property
    def done(self) -> bool:
        """Whether all its lines have ended."""
        return self.ended == self.lines
