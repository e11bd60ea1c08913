"""Writes the site into a folder that is empty or contains an earlier report.

The folder records what each verdict's page was made from, so that a later report rewrites only changed ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from db.labels import SOLUTIONS, LabelChoice
from db.profiles import newest_profiles, read_profile
from db.rows import Row, counted, read_rows
from db.store import Store
from grader._version import __version__
from grader.errors import UserError
from grader.report.site import names, overview_pages
from grader.report.site.boards import Boards, read_boards
from grader.report.site.figures import devices
from grader.report.site.others import Others, newer_verdicts
from grader.report.site.pages import STATIC, Frame, save
from grader.report.site.verdict_page import Other, VerdictPage, write_verdict

_MARKER = ".kernel-report"
"""A folder with this file is a report and may be overwritten. It has the key of each page, as JSON."""

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
        self._made_from = _keys(out / _MARKER)
        self._made_from_now: dict[str, str] = {}
        self._there = {f"{folder}/{path.name}" for folder in names.FOLDERS for path in (out / folder).iterdir()}

    def is_current(self, page: str, key: str) -> bool:
        """Whether an earlier report made the page from what `key` stands for. Counts the page as written."""
        self.written.add(page)
        self._made_from_now[page] = key
        return self._made_from.get(page) == key and page in self._there

    def finish(self) -> None:
        """Record what the pages were made from, and remove those that this report does not have."""
        (self.out / _MARKER).write_text(json.dumps(self._made_from_now))
        for page in self._there - self.written:
            if page.endswith(".html"):
                (self.out / page).unlink()

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
    """Write a page for each verdict that has none yet, or another. Returns how many another grader's version wrote."""
    others, newer = Others(rows, boards), newer_verdicts(rows)
    site = _site_key(frame)
    stale = []
    profiles = newest_profiles(store, rows)
    for row, profile in zip(rows, profiles, strict=True):
        compared = [(other.id, title) for other, title in others.of(row)]
        key = _page_key(site, row, compared, newer.get(row.id), profile)
        if not writer.is_current(names.verdict_page(row.id), key):
            stale.append((row, profile))
    pages, write = _pages(store, stale, others, newer, frame), partial(write_verdict, writer.out)
    if len(stale) < _PARALLEL_FROM:
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


def _site_key(frame: Frame) -> str:
    """A digest of what all pages have in common: the frame, and this package's code, templates and assets."""
    digest = hashlib.sha256(f"{__version__} {frame}".encode())
    for path in _files(files("grader.report")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _page_key(site: str, row: Row, others: Sequence[tuple[int, str]], newer: int | None, profile: int | None) -> str:
    """A digest of what a verdict's page is made from.

    A stored verdict does not change, so its row stands for it, and so does a profile's id.
    """
    made = f"{site} {row} {others} {newer} {profile}"
    return hashlib.sha256(made.encode(errors="surrogatepass")).hexdigest()[:16]


def _keys(path: Path) -> dict[str, str]:
    """The keys by page that a report left; none if there is no such report, or it is of another version."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _files(folder: Traversable) -> list[Traversable]:
    found: list[Traversable] = []
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            found += _files(entry)
        elif not entry.name.endswith(".pyc"):
            found.append(entry)
    return found
