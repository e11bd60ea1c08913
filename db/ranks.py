"""Ranks by the lower ends of intervals, shared where intervals overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Rank(NamedTuple):
    """A rank, and whether others share it."""

    rank: int | None
    """None for what is not ranked."""
    tied: bool = False


def shared_ranks(intervals: Sequence[tuple[float, float] | None]) -> list[Rank]:
    """Ranks of intervals sorted by their lower ends, highest first; no rank for an interval that is None.

    An interval that overlaps the lower end of the leader of the preceding rank shares that rank.
    """
    ranks: list[int | None] = []
    leader, rank = None, 0
    for position, interval in enumerate(intervals, start=1):
        if interval is None:
            ranks.append(None)
            continue
        if leader is None or interval[1] < leader:
            leader, rank = interval[0], position
        ranks.append(rank)
    shared = Counter(ranks)
    return [Rank(rank, rank is not None and shared[rank] > 1) for rank in ranks]
