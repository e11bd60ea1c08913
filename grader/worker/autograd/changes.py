"""Changes how one forward or backward computes."""

from __future__ import annotations

import contextlib
from typing import Any

from grader import protocol as p
from grader.worker.autograd.rounded_results import RoundedResults
from grader.worker.autograd.slips import Operators, Options, Recorded, Sources


def changed_forward(change: p.Change | None) -> contextlib.AbstractContextManager[Any]:
    """The mode for a forward, which has the name of what it changes, or sources; None without a change."""
    if isinstance(change, p.Rounding):
        return RoundedResults(change)
    if change is None:
        return contextlib.nullcontext()
    return Options(change.number) if change.within == "forward" else Recorded()


def changed_backward(change: p.Change | None, sources: Sources) -> contextlib.AbstractContextManager[Any]:
    """The mode for a backward, which has the name of what it changes; None without a change.

    `sources` are those that the forward recorded.
    """
    if isinstance(change, p.Rounding):
        return RoundedResults(change)
    if change is None or change.within == "forward":
        return contextlib.nullcontext()
    return Operators(change.number, sources)
