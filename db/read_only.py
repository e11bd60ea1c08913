"""Opens a database for reading only, also while another process writes."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from db.engine import BUSY_TIMEOUT_SECONDS, database_url, refuse_other_files
from db.schema import is_current
from db.store import Store
from grader.errors import StoreError


def open_to_read(where: str | Path) -> Store:
    """A store for a command that reads. Raises StoreError if there is no database, or it cannot be read.

    A database with an older schema is migrated first, which needs write permission. A URL with options of its own,
    such as `mode=ro`, is opened with these.
    """
    url = database_url(where)
    if url.query:
        return Store.open(where, must_exist=True)
    store = _open(url)
    if not _is_current(store):
        store.close()
        Store.open(where, must_exist=True).close()
        store = _open(url)
    return store


def open_read_only(where: str | Path) -> Store:
    """A store that never writes. Raises StoreError if this grader cannot read the database as it is.

    Every session has a connection of its own, so that a replaced file is noticed.
    """
    url = database_url(where)
    if url.query:
        raise StoreError(f"{where}: a URL's options are not supported here; write a path, or sqlite:///path")
    store = _open(url)
    if not _is_current(store):
        raise StoreError(
            f"{url.database}: written by another version of the grader; `grader leaderboard --db {url.database}` "
            "migrates it, or says why it cannot"
        )
    return store


def _open(url: URL) -> Store:
    path = Path(url.database or "")
    if not path.exists():
        raise StoreError(f"{path}: there is no such database; `grader grade` makes one, --db names another")
    refuse_other_files(url)
    return Store(create_engine("sqlite://", creator=partial(_connect, path), poolclass=NullPool), url)


def _is_current(store: Store) -> bool:
    with store.reading() as session:
        return is_current(session.connection())


def _connect(path: Path) -> sqlite3.Connection:
    """A connection that refuses to write and leaves no file behind.

    In WAL mode SQLite creates two more files beside the database. Only a connection with write permission removes
    them; if they stay, they may prevent other processes from writing.
    """
    address = path.resolve().as_uri()
    if all(os.access(one, os.W_OK, effective_ids=True) for one in (path, path.resolve().parent)):
        return _connected(f"{address}?mode=rw")
    if Path(f"{path}-wal").exists():
        return _connected(f"{address}?mode=ro")
    # Without a WAL file no process writes, so the file can be read as it is.
    return _connected(f"{address}?mode=ro&immutable=1")


def _connected(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_SECONDS, check_same_thread=False)
    try:
        connection.execute("PRAGMA query_only = ON")
        # SQLite opens the file at the first query.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
