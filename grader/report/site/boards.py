"""Boards as the site shows them: the database's ranking, with the whole interval and with ties shown as ties."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from db.leaderboard import Board, leaderboard
from db.store import Store
from grader.report.site.figures import FAST_P_STEPS, fast_counts
from grader.report.site.rows import Row, Speedup


@dataclass(frozen=True)
class Place:
    """One line of a board."""

    rank: int | None
    """Absent without a timing."""
    tied: bool
    """Its interval overlaps that of another one with the same rank."""
    row: Row
    speedup: Speedup | None


@dataclass(frozen=True)
class AuthorPlace:
    """One author's best on each problem, taken together."""

    rank: int | None
    tied: bool
    author: str
    ranked: int
    """Problems with a place on the board."""
    tried: int
    speedup: Speedup | None
    """Geometric means, of the intervals' ends too; None without any timing."""
    fast: tuple[int, ...]
    """How many problems are right and faster than each of `FAST_P_STEPS`."""


def read_boards(store: Store, rows: Iterable[Row]) -> dict[Board, dict[tuple[str, str], list[Place]]]:
    """Both boards, by device name and problem."""
    by_id = {row.id: row for row in rows}
    boards: dict[Board, dict[tuple[str, str], list[Place]]] = {"total": {}, "forward": {}}
    for board in boards:
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for entry in leaderboard(store, board=board).entries:
            # A verdict that arrived since the rows were read belongs to the next report.
            if entry.verdict_id in by_id:
                groups[entry.device_name, entry.problem].append(by_id[entry.verdict_id])
        boards[board] = {key: _places(board, group) for key, group in groups.items()}
    return boards


def author_board(board: Board, places: Iterable[Place], rows: Iterable[Row]) -> list[AuthorPlace]:
    """Authors on one device: more problems first, then the higher lower end."""
    tried: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        tried[row.author].add(row.problem)
    best: dict[str, dict[str, Place]] = defaultdict(dict)
    for place in places:
        best[place.row.author].setdefault(place.row.problem, place)
    found = [_author(author, best[author], len(problems)) for author, problems in tried.items()]
    found.sort(key=lambda one: (-one.ranked, -(one.speedup.low if one.speedup else 0.0), one.author))
    ranks = _ranks([(one.ranked, one.speedup) for one in found])
    return [
        AuthorPlace(rank, tied, one.author, one.ranked, one.tried, one.speedup, one.fast)
        for (rank, tied), one in zip(ranks, found, strict=True)
    ]


def _author(author: str, best: dict[str, Place], tried: int) -> AuthorPlace:
    timed = [place.speedup for place in best.values() if place.speedup]
    mean = (
        Speedup(
            geometric_mean(one.value for one in timed),
            geometric_mean(one.low for one in timed),
            geometric_mean(one.high for one in timed),
        )
        if timed
        else None
    )
    fast = fast_counts([place.speedup for place in best.values()], FAST_P_STEPS)
    return AuthorPlace(None, False, author, len(best), tried, mean, fast)


def _places(board: Board, rows: list[Row]) -> list[Place]:
    speedups = [row.total if board == "total" else row.forward for row in rows]
    ranks = _ranks([(0, speedup) for speedup in speedups])
    return [Place(rank, tied, row, one) for (rank, tied), row, one in zip(ranks, rows, speedups, strict=True)]


def _ranks(ordered: Sequence[tuple[int, Speedup | None]]) -> list[tuple[int | None, bool]]:
    """Rank and whether it is shared. Whoever's interval reaches the lower end of the first of a group belongs to it.

    The items come sorted: by class (only within one can there be ties), then by the interval's lower end.
    """
    heads: list[int | None] = []
    for position, (kind, speedup) in enumerate(ordered):
        before = heads[-1] if heads else None
        if speedup is None:
            heads.append(None)
        elif before is not None and _reaches(speedup, kind, ordered[before]):
            heads.append(before)
        else:
            heads.append(position)
    shared = Counter(heads)
    return [(None, False) if head is None else (head + 1, shared[head] > 1) for head in heads]


def _reaches(speedup: Speedup, kind: int, head: tuple[int, Speedup | None]) -> bool:
    return head[0] == kind and head[1] is not None and speedup.high >= head[1].low
