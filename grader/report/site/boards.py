"""The boards of the site: the database's ranking, with intervals and ties."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean
from typing import Literal

from db.leaderboard import Board, leaderboard, shared_ranks
from db.rows import Row, Speedup
from db.store import Store
from grader.report.site.figures import FAST_P_STEPS, fast_counts

_SHOWN: tuple[Literal["total", "forward"], ...] = ("total", "forward")


@dataclass(frozen=True)
class Place:
    """One line of a board."""

    rank: int | None
    """None if it was not timed, or is far beyond the roofline bound."""
    tied: bool
    """Whether another place has the same rank."""
    row: Row
    speedup: Speedup | None
    counted: Speedup | None
    """The speedup used in means and fast_p, capped at the roofline bound."""


@dataclass(frozen=True)
class AuthorPlace:
    """One author's best places over all problems."""

    rank: int | None
    tied: bool
    author: str
    ranked: int
    """Number of problems with a place on the board."""
    tried: int
    speedup: Speedup | None
    """Geometric means of speedups and interval ends; None if nothing was timed."""
    fast: tuple[int, ...]
    """Number of problems that are correct and faster than each of `FAST_P_STEPS`."""


def read_boards(store: Store, rows: Iterable[Row]) -> dict[Board, dict[tuple[str, str], list[Place]]]:
    """The boards `total` and `forward`, by (device name, problem)."""
    by_id = {row.id: row for row in rows}
    boards: dict[Board, dict[tuple[str, str], list[Place]]] = {}
    for board in _SHOWN:
        groups: dict[tuple[str, str], list[Place]] = defaultdict(list)
        for entry in leaderboard(store, board=board).entries:
            # A verdict that arrived since the rows were read belongs to the next report.
            if entry.verdict_id in by_id:
                row = by_id[entry.verdict_id]
                speedup = row.total if board == "total" else row.forward
                place = Place(entry.rank, entry.tied, row, speedup, row.believed(board))
                groups[entry.device_name, entry.problem].append(place)
        boards[board] = dict(groups)
    return boards


def author_board(places: Iterable[Place], rows: Iterable[Row]) -> list[AuthorPlace]:
    """Authors on one device, sorted by number of ranked problems, then by the mean's lower end."""
    tried: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        tried[row.author].add(row.problem)
    best: dict[str, dict[str, Place]] = defaultdict(dict)
    for place in places:
        best[place.row.author].setdefault(place.row.problem, place)
    summaries = [_author(author, best[author], len(problems)) for author, problems in tried.items()]
    summaries.sort(key=lambda one: (-one.ranked, -(one.speedup.low if one.speedup else 0.0), one.author))
    ranks = _ranks([(one.ranked, one.speedup) for one in summaries])
    return [
        AuthorPlace(rank, tied, one.author, one.ranked, one.tried, one.speedup, one.fast)
        for (rank, tied), one in zip(ranks, summaries, strict=True)
    ]


def _author(author: str, best: dict[str, Place], tried: int) -> AuthorPlace:
    timed = [place.counted for place in best.values() if place.counted]
    mean = (
        Speedup(
            geometric_mean(one.value for one in timed),
            geometric_mean(one.low for one in timed),
            geometric_mean(one.high for one in timed),
        )
        if timed
        else None
    )
    fast = fast_counts([place.counted for place in best.values()], FAST_P_STEPS)
    return AuthorPlace(None, False, author, len(best), tried, mean, fast)


def _ranks(ordered: Sequence[tuple[int, Speedup | None]]) -> list[tuple[int | None, bool]]:
    """Rank and whether it is shared, by overlapping intervals.

    `ordered` is sorted by group, then by the interval's lower end. Ties occur only within a group.
    """
    ranks: list[int | None] = []
    for _, group in groupby(ordered, key=lambda one: one[0]):
        before = len(ranks)
        shared = shared_ranks([None if speedup is None else (speedup.low, speedup.high) for _, speedup in group])
        ranks += [None if rank is None else before + rank for rank in shared]
    counts = Counter(ranks)
    return [(rank, rank is not None and counts[rank] > 1) for rank in ranks]
