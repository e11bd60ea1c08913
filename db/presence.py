"""A run's presence in the database: that it lives, what it does, and what it is to end."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Session, col, delete

from db.store import Run, Store
from db.tables import CancelRow, GraderRow
from grader.errors import StoreError
from grader.verdict.columns import iso_utc
from grader.verdict.value import Value

log = logging.getLogger(__name__)

LEASE_SECONDS = 120.0
"""A process on another machine that has said nothing for so long is dead. Longer than a database is ever locked."""
FORGET_SECONDS = 86_400.0
"""After so long a silence a run's row is deleted. A choice: a process that was only stopped is back by then."""
BEAT_SECONDS = 20.0
"""Between its signs of life."""
LOOK_SECONDS = 1.0
"""Between looks at what others ask for, and between changes of the status."""


class WorkerState(Value):
    """One GPU or process of a grader, as others see it."""

    name: str
    state: str
    graded: int
    under_way: str | None = None
    reason: str | None = None


class RunProgress(Value):
    """The work of a grader, as others see it."""

    graded: int
    """Verdicts since it began."""
    failed: int
    """Verdicts that are `grader_error`, and gradings that ended without one."""
    rate: float | None = None
    """Verdicts per second of late; absent before the second one."""
    left: int | None = None
    """What waits, if that is known."""
    workers: tuple[WorkerState, ...] = ()


class Presence:
    """Says every now and then that a run lives; any thread may call it."""

    def __init__(
        self,
        store: Store,
        run: Run,
        *,
        priority: int,
        status: Callable[[], RunProgress] | None,
        cancelled: Callable[[str | None], None],
    ) -> None:
        """`cancelled` gets the author whose submissions are to end, or None for all of the run."""
        self._store, self._run, self._priority = store, run, priority
        self._status, self._cancelled = status, cancelled
        self._ended, self._behind = threading.Event(), threading.Event()
        self._text: str | None = None
        """The status, as JSON."""
        self._written: str | None = None
        """The status that others see."""
        self._signed_at, self._heard = time.monotonic(), 0
        self._thread = threading.Thread(target=self._stay, name="presence", daemon=True)

    def enter(self) -> None:
        """Begin. Raises StoreError."""
        with self._store.writing() as session:
            session.execute(delete(GraderRow).where(col(GraderRow.seen_at) < _ago(FORGET_SECONDS)))
            self.sign(session)
        with suppress(StoreError):
            self._look()
            self._beat()

    def sign(self, session: Session) -> None:
        """Write that the run lives, also if it was silent for so long that another one has deleted its row."""
        row = {
            "machine": machine(),
            "process": os.getpid(),
            "process_started": started(os.getpid()) or 0,
            "seen_at": _ago(0.0),
            "priority": self._priority,
            "status": self._text,
        }
        upsert = insert(GraderRow).values(run_id=self._run.id, **row)
        session.execute(upsert.on_conflict_do_update(index_elements=["run_id"], set_=row))

    def start(self) -> None:
        """Go on saying so."""
        self._thread.start()

    def leave(self) -> None:
        """End, with all claims."""
        self._ended.set()
        self._thread.join()
        with suppress(StoreError), self._store.writing() as session:  # a dead process's claims end too
            session.execute(delete(GraderRow).where(col(GraderRow.run_id) == self._run.id))

    def wait_for_others(self, say: Callable[[str], None]) -> None:
        """Return once no grader of this machine that has a higher priority is at work."""
        if self._behind.is_set():
            say("a grader with a higher priority is at work on this machine; waiting until it is done")
        while self._behind.is_set() and not self._ended.wait(LOOK_SECONDS / 10):
            pass

    def _stay(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for act in (self._beat, self._look):
                try:
                    act()
                except StoreError:
                    pass  # locked: the next one counts too
                except Exception:  # without signs of life, others would take this run's claims
                    log.exception("%s failed", act.__name__)

    def _beat(self) -> None:
        """Say that the run lives, and what it does, if that has changed or was said `BEAT_SECONDS` ago."""
        if self._status is not None:
            self._text = self._status().model_dump_json()
        now, text = time.monotonic(), self._text
        if text != self._written or now - self._signed_at >= BEAT_SECONDS:
            with self._store.writing() as session:
                self.sign(session)
            self._signed_at, self._written = now, text

    def _look(self) -> None:
        with self._store.reading() as session:
            requests = session.execute(
                select(col(CancelRow.id), col(CancelRow.author))
                .where(col(CancelRow.run_id) == self._run.id, col(CancelRow.id) > self._heard)
                .order_by(col(CancelRow.id))
            ).all()
            higher = select(GraderRow).where(
                col(GraderRow.machine) == machine(), col(GraderRow.priority) > self._priority
            )
            behind = any(map(lives, session.execute(higher).scalars()))
        (self._behind.set if behind else self._behind.clear)()
        for number, author in requests:
            self._cancelled(author)
            self._heard = number


def lives(grader: GraderRow) -> bool:
    """Whether the process behind a run still runs."""
    if grader.machine == machine():
        return started(grader.process) == grader.process_started
    return grader.seen_at > _ago(LEASE_SECONDS)


def machine() -> str:
    """Equal for processes that see each other: the machine's start, and the namespace of process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"


def started(process: int) -> int | None:
    """When a process started, in clock ticks; None if it has ended."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    return None


def _ago(seconds: float) -> str:
    return iso_utc(datetime.now(UTC) - timedelta(seconds=seconds))
