"""SQLite as this project uses it: its settings, its transactions, and its failures in words a user can act on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError

from grader.errors import StoreError

BUSY_TIMEOUT_SECONDS = 30.0
"""How long a writer waits for another one; a verdict takes milliseconds to write."""

_MAGIC = b"SQLite format 3\0"

_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database; name another file with --db",
    sqlite3.SQLITE_CORRUPT: "the database is damaged; restore a copy, or name another file with --db",
    sqlite3.SQLITE_READONLY: "the database is read-only; make the file and its folder writable, or name another --db",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened; check that its folder exists and may be written",
    sqlite3.SQLITE_BUSY: "another process keeps the database locked; wait until it is done, or name another --db",
    sqlite3.SQLITE_LOCKED: "another process keeps the database locked; wait until it is done, or name another --db",
    sqlite3.SQLITE_FULL: "the disk is full; make room, and run again: finished verdicts are kept",
    sqlite3.SQLITE_IOERR: "reading or writing the database failed; check the disk, or name another --db",
    sqlite3.SQLITE_PERM: "the database may not be used by this user; check its permissions",
    sqlite3.SQLITE_AUTH: "the database may not be used by this user; check its permissions",
}


def database_url(where: str | Path) -> URL:
    """The URL of a path or URL. Raises StoreError for what is neither, and for a database that is not SQLite."""
    text = str(where)
    if not text or (text.startswith("sqlite:") and "://" not in text):
        raise StoreError(f"{text!r}: no database; write a path, or sqlite:///path")
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise StoreError(f"{text}: no database URL; write a path, or sqlite:///path") from error
    if url.get_backend_name() != "sqlite":
        raise StoreError(f"{url}: verdicts are kept in SQLite only; write a path, or sqlite:///path")
    return url


def refuse_other_files(url: URL) -> None:
    """Raise StoreError for a file that is no database. SQLite itself would take a short one for an empty database."""
    path = Path(url.database or "")
    if url.query or not path.is_file():
        return
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except PermissionError as error:
        raise StoreError(f"{path}: {_REMEDIES[sqlite3.SQLITE_PERM]}") from error
    if start and start != _MAGIC:
        raise StoreError(f"{path}: {_REMEDIES[sqlite3.SQLITE_NOTADB]}")


def make_engine(url: URL, *, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> Engine:
    """An engine whose transactions begin as `writing` or `reading` says."""
    engine = create_engine(url, connect_args={"timeout": busy_timeout_seconds})

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads and then writes cannot wait for another writer; one that begins as a writer can.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return engine


def writing(engine: Engine) -> Engine:
    """The same engine, for transactions that write."""
    return engine.execution_options(writes=True)


@contextmanager
def explained(where: URL) -> Iterator[None]:
    """Turn SQLite's failures into StoreErrors with a remedy; others are bugs and pass."""
    try:
        yield
    except DatabaseError as error:
        cause = error.orig
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if code not in _REMEDIES:
            raise
        raise StoreError(f"{where.database or where}: {_REMEDIES[code]}") from error
