"""SQLite with this project's settings and transactions, and its failures as StoreErrors with a remedy."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Select, create_engine, event, func, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from grader.errors import StoreBusy, StoreError

BUSY_TIMEOUT_SECONDS = 30.0
"""How long a writer waits for another one; a verdict takes milliseconds to write."""

_MAGIC = b"SQLite format 3\0"

_DAMAGED = "the database is damaged; restore a copy, or name another file with --db"
_READ_ONLY = "the database is read-only; make the file and its folder writable, or name another --db"
_LOCKED = "another process keeps the database locked; wait until it is done, or name another --db"
_FORBIDDEN = "the database may not be used by this user; check its permissions"
_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database; name another file with --db",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened; check that its folder exists and may be written",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: "the disk is full; make room, and run again: finished verdicts are kept",
    sqlite3.SQLITE_IOERR: "reading or writing the database failed; check the disk, or name another --db",
    sqlite3.SQLITE_PERM: _FORBIDDEN,
    sqlite3.SQLITE_AUTH: _FORBIDDEN,
}

_UNREADABLE = (SQLAlchemyError, sqlite3.Error, ValueError, TypeError, LookupError, OverflowError)
"""What damaged content raises: a column or table that is missing, text that is not UTF-8 or not JSON, a number in
place of a text, a source that does not have its hash."""

_LONGEST_CAUSE = 120
"""Characters of a cause in a message; SQLite quotes whole cells."""


def database_url(where: str | Path) -> URL:
    """The URL of a path or URL. Raises StoreError for anything else, and for other databases than SQLite."""
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
    """Raise StoreError for a file that is not a database. SQLite takes a short one for an empty database."""
    path = Path(url.database or "")
    if url.query or not path.is_file():
        return
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except PermissionError as error:
        raise StoreError(f"{path}: {_FORBIDDEN}") from error
    if start and start != _MAGIC:
        raise StoreError(f"{path}: {_REMEDIES[sqlite3.SQLITE_NOTADB]}")


def make_engine(url: URL, *, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> Engine:
    """An engine for reading, and for writing in the transactions of `writing`."""
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


def among(values: Iterable[int | str]) -> Select[Any]:
    """The values as a subquery for `in_`: one parameter, however many they are."""
    return select(func.json_each(json.dumps(list(values))).table_valued("value").c.value)


@contextmanager
def explained(where: URL) -> Iterator[None]:
    """Turn failures of the database and its content into StoreErrors of one line with a remedy.

    A violated constraint passes: no state of the file causes it.
    """
    try:
        yield
    except IntegrityError:
        raise
    except _UNREADABLE as error:
        cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        kind = StoreBusy if _REMEDIES.get(code) == _LOCKED else StoreError
        raise kind(f"{where.database or where}: {_remedy(cause, code)}") from error


def _remedy(cause: BaseException, code: int) -> str:
    if code in _REMEDIES:
        return _REMEDIES[code]
    text = " ".join(str(cause).split())
    shown = text if len(text) <= _LONGEST_CAUSE else f"{text[:_LONGEST_CAUSE]} ..."
    return f"the database cannot be read ({type(cause).__name__}: {shown}); restore a copy, or name another --db"
