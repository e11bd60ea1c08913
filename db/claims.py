"""Claims: what a run is grading, so that no other run with the same database grades it too.

A claim ends with its verdict, with its run, and with its process: at once where that can be seen to have ended, else
when it has said for `LEASE_SECONDS` nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from sqlalchemy import insert, update
from sqlmodel import Session, col, delete

from db.patience import Patience
from db.store import Run, Store
from db.tables import ClaimRow, GraderRow
from grader.errors import StoreError
from grader.verdict.columns import iso_utc

LEASE_SECONDS = 120.0
"""A process on another machine that has said nothing for so long is dead. Longer than a database is ever locked."""
BEAT_SECONDS = 20.0
"""Between its signs of life."""


class Claims:
    """The claims of one run. A context manager; any thread may call it."""

    def __init__(self, store: Store, run: Run, say: Callable[[str], None]) -> None:
        """`say` prints a line for the user."""
        self._store, self._run = store, run
        self._patience = Patience(store.path, say)
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._stay_alive, name="claims", daemon=True)

    def __enter__(self) -> Self:
        self._patience.wait(self._enter)
        self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._beat.join()
        with suppress(StoreError), self._store.writing() as session:  # a dead process's claims end too
            _forget(session, self._run.id)

    def take(self, key: str) -> bool:
        """Whether the claim is this run's now; False while another one that lives has it. Raises StoreError."""
        return self._patience.wait(lambda: self._take(key))

    def release(self, key: str) -> None:
        """End a claim without a verdict. Raises StoreError."""

        def end() -> None:
            with self._store.writing() as session:
                session.execute(delete(ClaimRow).where(col(ClaimRow.key) == key, col(ClaimRow.run_id) == self._run.id))

        self._patience.wait(end)

    def _take(self, key: str) -> bool:
        with self._store.writing() as session:
            held = session.get(ClaimRow, key)
            if held is not None and held.run_id != self._run.id:
                other = session.get_one(GraderRow, held.run_id)
                if _lives(other):
                    return False
                _forget(session, other.run_id)
                session.expire_all()
            if session.get(ClaimRow, key) is None:
                session.execute(insert(ClaimRow).values(key=key, run_id=self._run.id))
            return True

    def _enter(self) -> None:
        with self._store.writing() as session:
            session.add(
                GraderRow(
                    run_id=self._run.id,
                    machine=_machine(),
                    process=os.getpid(),
                    process_started=_started(os.getpid()) or 0,
                    seen_at=_now(),
                )
            )

    def _stay_alive(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            alive = update(GraderRow).where(col(GraderRow.run_id) == self._run.id).values(seen_at=_now())
            with suppress(StoreError), self._store.writing() as session:  # locked: the next one counts too
                session.execute(alive)


def _forget(session: Session, run_id: int) -> None:
    session.execute(delete(GraderRow).where(col(GraderRow.run_id) == run_id))


def _lives(other: GraderRow) -> bool:
    if other.machine == _machine():
        return _started(other.process) == other.process_started
    return other.seen_at > iso_utc(datetime.now(UTC) - timedelta(seconds=LEASE_SECONDS))


def _machine() -> str:
    """What processes have in common that see each other: the machine's start, and the namespace of process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"


def _started(process: int) -> int | None:
    """When a process started, in clock ticks; None if it has ended."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    return None


def _now() -> str:
    return iso_utc(datetime.now(UTC))
