"""Writes the site into a folder that is empty or contains an earlier report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from db.labels import SOLUTIONS, LabelChoice
from db.profiles import newest_profiles, read_profile
from db.rows import Row, counted, read_rows
from db.store import Store
from grader.errors import UserError
from grader.report.site import names, overview_pages
from grader.report.site.boards import Boards, read_boards
from grader.report.site.figures import devices
from grader.report.site.others import Others, newer_verdicts
from grader.report.site.pages import STATIC, Frame, save
from grader.report.site.verdict_page import Other, VerdictPage, write_verdict

_MARKER = ".kernel-report"
"""A folder with this file is a report and may be overwritten."""

_PARALLEL_FROM = 400
"""Verdicts; fewer are written sooner than other processes would start."""

_BATCH = 256
"""Verdicts; two such batches are in memory at a time."""


@dataclass(frozen=True)
class Written:
    """The result of writing a site."""

    index: Path
    pages: int
    unreadable: int
    """Number of verdicts written by another version of the grader; their pages are short."""


def write_site(store: Store, out: Path, labels: LabelChoice = SOLUTIONS, frame: Frame = STATIC) -> Written:
    """Write the whole site. Raises UserError if the folder contains anything else.

    `labels` selects what is ranked, `frame` has the site's title and introduction. Many verdicts are written by several
    processes, so a script calls this under `if __name__ == "__main__"`.
    """
    _claim(out)
    writer = _Writer(out)
    rows = read_rows(store)
    counting = [row for row in counted(rows) if row.precision is labels.precision]
    boards = read_boards(store, rows, labels)
    unreadable = _write_verdicts(writer, store, rows, boards, frame)
    for problem, (problem_rows, counts) in _grouped(rows, counting, "problem"):
        source = store.problem_source(problem_rows[-1].problem_hash)
        writer.write(
            names.problem_page(problem),
            overview_pages.problem_page(problem, problem_rows, counts, boards, source, frame),
        )
    for author, (author_rows, counts) in _grouped(rows, counting, "author"):
        writer.write(names.author_page(author), overview_pages.author_page(author, author_rows, counts, boards, frame))
    for device in devices(counting):
        writer.write(names.matrix_page(device.name), overview_pages.matrix_page(device, frame))
    for number in range(1, overview_pages.list_count(rows) + 1):
        writer.write(names.list_page(number), overview_pages.list_page(rows, number, frame))
    writer.write(names.INDEX, overview_pages.index_page(rows, counting, boards, frame))
    writer.finish()
    return Written(out / names.INDEX, len(writer.written), unreadable)


class _Writer:
    def __init__(self, out: Path) -> None:
        self.out = out
        self.written: set[str] = set()
        for folder in names.FOLDERS:
            (out / folder).mkdir(exist_ok=True)

    def finish(self) -> None:
        """Remove the pages of an earlier report that this one does not have."""
        for folder in names.FOLDERS:
            for path in (self.out / folder).glob("*.html"):
                if f"{folder}/{path.name}" not in self.written:
                    path.unlink()

    def write(self, page: str, text: str) -> None:
        """Write one page."""
        save(self.out / page, text)
        self.written.add(page)


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


def _write_verdicts(writer: _Writer, store: Store, rows: list[Row], boards: Boards, frame: Frame) -> int:
    """Write a page for each verdict. Returns how many another version of the grader wrote."""
    profiled = list(zip(rows, newest_profiles(store, rows), strict=True))
    pages = _pages(store, profiled, Others(rows, boards), newer_verdicts(rows), frame)
    writer.written.update(names.verdict_page(row.id) for row in rows)
    write = partial(write_verdict, writer.out)
    if len(rows) < _PARALLEL_FROM:
        return sum(map(write, pages))
    unreadable, written = 0, iter([False])
    # Spawned, not forked, because the database is open in this process.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        while batch := list(islice(pages, _BATCH)):
            # Handed over before the batch ahead of it is waited for, so that no process idles while this one reads.
            ahead, written = written, pool.map(write, batch, chunksize=16)
            unreadable += sum(ahead)
        return unreadable + sum(written)


def _pages(
    store: Store,
    rows: list[tuple[Row, int | None]],
    others: Others,
    newer: Mapping[int, int],
    frame: Frame,
) -> Iterator[VerdictPage]:
    """Yields what the pages are made from, in order, a batch in memory at a time. A row comes with its profile's id."""
    for start in range(0, len(rows), _BATCH):
        part = {row.id: (row, profile_id, list(others.of(row))) for row, profile_id in rows[start : start + _BATCH]}
        sources = store.sources(
            one.source_hash for row, _, compared in part.values() for one in (row, *(other for other, _ in compared))
        )
        for verdict_id, document in store.documents(list(part)):
            row, profile_id, compared = part[verdict_id]
            profile = None if profile_id is None else read_profile(store, profile_id)
            shown = tuple(Other(other, title, sources.get(other.source_hash, "")) for other, title in compared)
            source = sources.get(row.source_hash, "")
            yield VerdictPage(row, document, source, shown, newer.get(verdict_id), frame, profile)


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
