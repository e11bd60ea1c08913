"""The progress of a batch: verdicts, failures, rate and the time that is left."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from db.presence import RunProgress, WorkerState
from grader.verdict.models import Status

if TYPE_CHECKING:
    from grader.pool.place import PlaceState

RECENT_SECONDS = 300.0
"""The rate is that of the verdicts in this time. A choice: long enough for a few large problems."""
MOST_RECENT = 1000
"""Verdicts that are remembered for it."""


class Reached:
    """Counts the verdicts that a batch reaches. Any thread may call it."""

    def __init__(self) -> None:
        self.places: Callable[[], Sequence[PlaceState]] = tuple
        """The places that grade, once there are any."""
        self._recent = deque[float](maxlen=MOST_RECENT)
        self._lock = threading.Lock()
        self._graded = self._failed = 0

    def note(self, status: Status | None) -> None:
        """Count a verdict, or None for a grading that ended without one."""
        with self._lock:
            self._recent.append(time.monotonic())
            self._graded += status is not None
            self._failed += status in (None, Status.GRADER_ERROR)

    def work(self, left: int | None) -> RunProgress:
        """The batch's present work; `left` is the number of submissions that wait, if that is known."""
        now = time.monotonic()
        with self._lock:
            recent = [at for at in self._recent if now - at < RECENT_SECONDS]
            graded, failed = self._graded, self._failed
        # From the first of them to now, so that the rate falls while nothing is reached.
        rate = (len(recent) - 1) / (now - recent[0]) if len(recent) > 1 and now > recent[0] else None
        return RunProgress(
            graded=graded,
            failed=failed,
            rate=None if rate is None else float(f"{rate:.3g}"),
            left=left,
            workers=tuple(WorkerState(**place.model_dump(exclude={"process"})) for place in self.places()),
        )
