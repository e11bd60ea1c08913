"""Selects the submissions that a verdict is compared with, and the newer verdict for a source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from db.rows import Row, source_key
from grader.report.site.boards import Boards


class Others:
    """Finds at most two submissions to compare with, so that pages do not grow with their number."""

    def __init__(self, rows: Iterable[Row], boards: Boards) -> None:
        self._boards = boards
        self._before: dict[int, Row] = {}
        sources: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
        for row in rows:
            known = sources[row.author, row.problem]
            # Graded again, a source moves to the end.
            known.pop(row.source_hash, None)
            if known:
                self._before[row.id] = known[next(reversed(known))]
            known[row.source_hash] = row

    def of(self, row: Row) -> Iterator[tuple[Row, str]]:
        """Yields (row, title): the author's previous source, and the leader (for the leader, the second)."""
        before = self._before.get(row.id)
        if before:
            yield before, "the author's previous source"
        for board, found in self._boards.by_name.items():
            places = found.places.get((row.device_name, row.problem), ())
            leader = next((place.row for place in places if place.row.source_hash != row.source_hash), None)
            if leader:
                if before is None or leader.source_hash != before.source_hash:
                    yield leader, f"the best other submission on the {board} board"
                return


def newer_verdicts(rows: Iterable[Row]) -> dict[int, int]:
    """The newest verdict that boards prefer for the same source, by the id of each older one.

    A verdict on one variant is not on boards.
    """
    same: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row in rows:
        if row.variant is None:
            same[source_key(row)].append(row.id)
    return {one: ids[-1] for ids in same.values() for one in ids[:-1]}
