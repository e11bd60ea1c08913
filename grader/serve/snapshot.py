"""Snapshots of the pages' content, reused until the database has new verdicts."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from db import Store
from db.labels import LabelChoice
from db.rows import Row, counted, read_rows
from grader.report.site import names, overview_pages
from grader.report.site.boards import Boards, read_boards
from grader.report.site.figures import DeviceRows, devices
from grader.report.site.filters import Choices, choices
from grader.report.site.others import Others, newer_verdicts
from grader.report.site.pages import Frame

_QUICK_SECONDS = 0.3
"""If reading takes longer, it runs in the background and requests get the previous snapshot."""


@dataclass(frozen=True)
class Snapshot:
    """All verdicts in short, at one point in time."""

    file: int
    """The database file's inode; it changes if the file is replaced."""
    rows: list[Row]
    counted: list[Row]
    boards: Boards
    frame: Frame

    @property
    def newest(self) -> int:
        """The highest id; 0 if there is no verdict."""
        return self.rows[-1].id if self.rows else 0

    @cached_property
    def by_id(self) -> dict[int, Row]:
        """Verdicts by id."""
        return {row.id: row for row in self.rows}

    @cached_property
    def others(self) -> Others:
        """Selects the submissions that a verdict is compared with."""
        return Others(self.rows, self.boards)

    @cached_property
    def newer(self) -> dict[int, int]:
        """The id of the newer verdict, by that of the verdict it supersedes."""
        return newer_verdicts(self.rows)

    @cached_property
    def problems(self) -> dict[str, str]:
        """Problems by path of their page."""
        return {names.problem_page(one): one for one in sorted({row.problem for row in self.rows})}

    @cached_property
    def authors(self) -> dict[str, str]:
        """Authors by path of their page."""
        return {names.author_page(one): one for one in sorted({row.author for row in self.rows})}

    @cached_property
    def devices(self) -> dict[str, DeviceRows]:
        """Devices by path of their matrix."""
        return {names.matrix_page(one.name): one for one in devices(self.counted)}

    @cached_property
    def choices(self) -> Choices:
        """The choices of the filtered list's form."""
        return choices(self.rows)

    @cached_property
    def index(self) -> str:
        """The first page."""
        return overview_pages.index_page(self.rows, self.counted, self.boards, self.frame)


class Snapshots:
    """Returns the newest snapshot; thread-safe."""

    def __init__(self, store: Store, path: Path, frame: Frame, labels: LabelChoice) -> None:
        self._store, self._path, self._frame, self._labels = store, path, frame, labels
        self._lock = threading.Lock()
        self._took = 0.0
        self._behind: threading.Thread | None = None
        self._current = self._read(None)

    def current(self, at_least: int = 0) -> Snapshot:
        """The newest snapshot. It contains verdict `at_least` if the database does."""
        known = self._current
        if self._is_current(known):
            return known
        if self._took > _QUICK_SECONDS and known.newest >= at_least:
            self._refresh_beside()
            return known
        return self._refresh()

    def _is_current(self, known: Snapshot) -> bool:
        return (*self._store.extent(), self._path.stat().st_ino) == (len(known.rows), known.newest, known.file)

    def _refresh(self) -> Snapshot:
        with self._lock:
            if not self._is_current(self._current):
                self._current = self._read(self._current)
            return self._current

    def _refresh_beside(self) -> None:
        if self._behind is None or not self._behind.is_alive():
            self._behind = threading.Thread(target=self._refresh, daemon=True)
            self._behind.start()

    def _read(self, before: Snapshot | None) -> Snapshot:
        started, file = time.monotonic(), self._path.stat().st_ino
        rows = before.rows + read_rows(self._store, after=before.newest) if before and before.file == file else []
        if len(rows) != self._store.extent()[0]:
            rows = read_rows(self._store)
        boards = read_boards(self._store, rows, self._labels)
        counting = [row for row in counted(rows) if row.precision is self._labels.precision]
        snapshot = Snapshot(file, rows, counting, boards, self._frame)
        # Rendered here, so that no request waits for it.
        _ = snapshot.index, snapshot.choices, snapshot.by_id
        self._took = time.monotonic() - started
        return snapshot
