"""The database as the server sees it: opened to read only, whoever writes meanwhile."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from db import Store
from db.engine import BUSY_TIMEOUT_SECONDS, database_url, explained, refuse_other_files
from db.schema import is_current
from grader.errors import StoreError


def open_read_only(where: str | Path) -> Store:
    """A store that cannot write. Raises StoreError where there is no database that this grader can read as it stands.

    Every session has a connection of its own, so that a file that was replaced is seen.
    """
    url = database_url(where)
    path = Path(url.database or "")
    if url.query:
        raise StoreError(f"{where}: options of a URL are not taken here; write a path, or sqlite:///path")
    if not path.is_file():
        raise StoreError(f"{path}: there is no such database; `grader grade` makes one, --db names another")
    refuse_other_files(url)
    engine = create_engine("sqlite://", creator=partial(_connect, path), poolclass=NullPool)
    with explained(url), engine.connect() as connection:
        if not is_current(connection):
            raise StoreError(
                f"{path}: of another version of the grader; `grader leaderboard --db {path}` brings it up to date, "
                "or says why it cannot"
            )
    return Store(engine, url)


def _connect(path: Path) -> sqlite3.Connection:
    address = path.resolve().as_uri()
    try:
        return _opened(f"{address}?mode=ro")
    except sqlite3.OperationalError:
        # A database in WAL mode has two more files beside it. Where they are not there and cannot be made, nobody
        # writes either, and the file can be read as it stands.
        if Path(f"{path}-wal").exists():
            raise
        return _opened(f"{address}?mode=ro&immutable=1")


def _opened(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_SECONDS, check_same_thread=False)
    try:
        # The file is opened when it is first needed, not before.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
