"""The schema that a database has, and the one that `db.tables` describes."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

NEWEST = "0010"
"""The last file in migrations/versions; named here so that opening a current database does not list them."""


def is_current(connection: Connection) -> bool:
    """Whether the database has the schema that `db.tables` describes."""
    return revision_of(connection) == NEWEST


def revision_of(connection: Connection) -> str | None:
    """The migration that the database is at, as alembic noted it; None for one without any."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
