"""Writes the site into a folder that is empty or contains an earlier report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from db.labels import SOLUTIONS, LabelChoice
from db.rows import Row, counted, read_rows
from db.store import Store
from grader.errors import UserError
from grader.report.site import names, overview_pages
from grader.report.site.boards import Boards, read_boards
from grader.report.site.figures import devices
from grader.report.site.others import Others, newer_verdicts
from grader.report.site.pages import save
from grader.report.site.verdict_page import Other, VerdictTask, write_verdict

_MARKER = ".kernel-report"
"""A folder with this file is a report and may be overwritten."""

_SOURCES_KEPT = 256

_PARALLEL_FROM = 400
"""Verdicts; fewer are written sooner than other processes would start."""

_BATCH = 512
"""Verdicts in memory at a time."""


@dataclass(frozen=True)
class Written:
    """The result of writing a site."""

    index: Path
    pages: int
    unreadable: int
    """Number of verdicts written by another version of the grader; their pages are short."""


def write_site(store: Store, out: Path, labels: LabelChoice = SOLUTIONS) -> Written:
    """Write the whole site. Raises UserError if the folder contains anything else.

    `labels` selects what is ranked. Many verdicts are written by several processes, so a script calls this under
    `if __name__ == "__main__"`.
    """
    _claim(out)
    writer = _Writer(out)
    rows = read_rows(store)
    counting = counted(rows)
    boards = read_boards(store, rows, labels)
    unreadable = _write_verdicts(writer, store, rows, boards)
    for problem, (of, counts) in _grouped(rows, counting, "problem"):
        source = store.problem_source(of[-1].problem_hash)
        writer.write(names.problem_page(problem), overview_pages.problem_page(problem, of, counts, boards, source))
    for author, (of, counts) in _grouped(rows, counting, "author"):
        writer.write(names.author_page(author), overview_pages.author_page(author, of, counts))
    for device in devices(counting):
        writer.write(names.matrix_page(device.name), overview_pages.matrix_page(device))
    for number in range(1, overview_pages.list_count(rows) + 1):
        writer.write(names.list_page(number), overview_pages.list_page(rows, number))
    writer.write(names.INDEX, overview_pages.index_page(rows, counting, boards))
    writer.remove_others()
    return Written(out / names.INDEX, len(writer.written), unreadable)


class _Writer:
    def __init__(self, out: Path) -> None:
        self.out = out
        self.written: set[str] = set()
        for folder in names.FOLDERS:
            (out / folder).mkdir(exist_ok=True)

    def write(self, page: str, text: str) -> None:
        """Write one page."""
        save(self.out / page, text)
        self.written.add(page)

    def remove_others(self) -> None:
        """Remove pages of an earlier report that this one does not have."""
        for folder in names.FOLDERS:
            for path in (self.out / folder).glob("*.html"):
                if f"{folder}/{path.name}" not in self.written:
                    path.unlink()


def _claim(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not (out / _MARKER).exists():
            raise UserError(
                f"{out}: the folder is not empty and is not an earlier report; choose another one with --out"
            )
        (out / _MARKER).touch()
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror}); choose another folder with --out") from error


def _write_verdicts(writer: _Writer, store: Store, rows: list[Row], boards: Boards) -> int:
    """Write one page per verdict. Returns the number of those written by another version of the grader."""
    for row in rows:
        writer.written.add(names.verdict_page(row.id))
    tasks = _tasks(store, rows, boards, writer.out)
    if len(rows) < _PARALLEL_FROM:
        return sum(map(write_verdict, tasks))
    unreadable = 0
    # Spawned, not forked, because the database is open in this process.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        while batch := list(islice(tasks, _BATCH)):
            unreadable += sum(pool.map(write_verdict, batch, chunksize=16))
    return unreadable


def _tasks(store: Store, rows: list[Row], boards: Boards, out: Path) -> Iterator[VerdictTask]:
    """Yields the tasks in order, a few in memory at a time."""
    source = lru_cache(_SOURCES_KEPT)(lambda source_hash: store.source(source_hash) or "")
    by_id, others, newer = {row.id: row for row in rows}, Others(rows, boards), newer_verdicts(rows)
    for verdict_id, document in store.documents():
        row = by_id.get(verdict_id)
        # A verdict that arrived since the rows were read belongs to the next report.
        if row:
            compared = tuple(Other(other, title, source(other.source_hash)) for other, title in others.of(row))
            yield VerdictTask(out, row, document, source(row.source_hash), compared, newer.get(row.id))


def _grouped(
    rows: Iterable[Row], counting: Iterable[Row], field: str
) -> Iterator[tuple[str, tuple[list[Row], list[Row]]]]:
    """Yields (name, (all rows, counted rows)) by problem or author."""
    groups: dict[str, tuple[list[Row], list[Row]]] = {}
    for row in rows:
        groups.setdefault(getattr(row, field), ([], []))[0].append(row)
    for row in counting:
        groups[getattr(row, field)][1].append(row)
    yield from sorted(groups.items())
