"""The boards of the site: the database's ranking, with intervals and ties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from db.against import Speedup
from db.labels import LabelChoice
from db.leaderboard import Board, leaderboard
from db.rows import Row
from db.store import Store
from db.summaries import Summary
from grader.report.boards import left_out_line
from grader.report.site.figures import FAST_P_STEPS, fast_counts

_SHOWN: tuple[Literal["total", "forward"], ...] = ("total", "forward")

_PASS_AT = (1, 5, 10)
"""The k of pass@k on an author's page."""


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
    over_compile: float | None = None
    """The speedup over the faster of torch.compile's modes; None if none was timed."""


@dataclass(frozen=True)
class AuthorPlace:
    """One author's place over all problems of a board on one device."""

    summary: Summary
    fast: tuple[int, ...]
    """Number of problems that are correct and faster than each of `FAST_P_STEPS`."""

    @property
    def speedup(self) -> Speedup | None:
        """The mean over the board's problems, with the means of the intervals' ends; None without a rank."""
        one = self.summary
        if one.rank is None:
            return None
        return Speedup(one.geometric_mean_speedup, one.geometric_mean_ci_low, one.geometric_mean_ci_high)


@dataclass(frozen=True)
class SiteBoard:
    """One board of the site, on all devices."""

    places: dict[tuple[str, str], list[Place]]
    """By (device name, problem)."""
    authors: dict[str, list[AuthorPlace]]
    """By device name, best first."""
    left_out: str | None
    """A line that says how many submissions the board leaves out; None if it leaves out none."""


@dataclass(frozen=True)
class Boards:
    """The boards `total` and `forward` of the submissions that `labels` takes."""

    labels: LabelChoice
    by_name: dict[Board, SiteBoard]


def read_boards(store: Store, rows: Iterable[Row], labels: LabelChoice) -> Boards:
    """The boards of the submissions that `labels` takes."""
    by_id = {row.id: row for row in rows}
    return Boards(labels, {board: _read(store, board, by_id, labels) for board in _SHOWN})


def _read(store: Store, board: Literal["total", "forward"], by_id: dict[int, Row], labels: LabelChoice) -> SiteBoard:
    found = leaderboard(store, board=board, labels=labels, pass_at=_PASS_AT)
    places: dict[tuple[str, str], list[Place]] = defaultdict(list)
    best: dict[tuple[str, str], dict[str, Place]] = defaultdict(dict)
    for entry in found.entries:
        # A verdict that arrived since the rows were read belongs to the next report.
        if entry.verdict_id in by_id:
            row = by_id[entry.verdict_id]
            speedup = row.total if board == "total" else row.forward
            over = row.total_compile if board == "total" else row.forward_compile
            place = Place(entry.rank, entry.tied, row, speedup, row.believed(board), over)
            places[entry.device_name, entry.problem].append(place)
            best[entry.author, entry.device_name].setdefault(entry.problem, place)
    authors: dict[str, list[AuthorPlace]] = defaultdict(list)
    for one in found.summaries:
        counted = [place.counted for place in best[one.author, one.device_name].values()]
        authors[one.device_name].append(AuthorPlace(one, fast_counts(counted, FAST_P_STEPS)))
    return SiteBoard(dict(places), dict(authors), left_out_line(found))
