"""The submissions that a verdict's source is compared with, and the verdict that superseded it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from db.leaderboard import Board
from db.rows import Row
from grader.report.site.boards import Place


class Others:
    """Finds two at most: a page does not grow with the number of submissions."""

    def __init__(self, rows: Iterable[Row], boards: dict[Board, dict[tuple[str, str], list[Place]]]) -> None:
        self._boards = boards
        self._before: dict[int, Row] = {}
        texts: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
        for row in rows:
            known = texts[row.author, row.problem]
            # The last one comes last, also where it was graded before.
            known.pop(row.source_hash, None)
            if known:
                self._before[row.id] = known[next(reversed(known))]
            known[row.source_hash] = row

    def of(self, row: Row) -> Iterator[tuple[Row, str]]:
        """The author's previous text for the problem, and the first on the board (the second, for the first)."""
        before = self._before.get(row.id)
        if before:
            yield before, "the author's text before"
        for board in ("total", "forward"):
            places = self._boards[board].get((row.device_name, row.problem), ())
            leader = next((place.row for place in places if place.row.source_hash != row.source_hash), None)
            if leader:
                if before is None or leader.source_hash != before.source_hash:
                    yield leader, f"the best other on the {board} board"
                return


def newer_verdicts(rows: Iterable[Row]) -> dict[int, int]:
    """The newest verdict on the same text and device, for those that are not it."""
    same: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row in rows:
        same[row.author, row.label, row.sample, row.problem, row.source_hash, row.device_name].append(row.id)
    return {one: ids[-1] for ids in same.values() for one in ids[:-1]}
