"""Migrates a database to this grader's schema, or says why it cannot be used.

Apart from `db.schema`, because alembic takes a tenth of a second to import and a current database needs none of it.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, inspect
from sqlalchemy.engine import URL

from db.schema import NEWEST, revision_of
from grader.errors import StoreError

_MIGRATIONS = Path(__file__).resolve().parent / "migrations"


def upgrade(connection: Connection, where: URL, *, versions: Path = _MIGRATIONS / "versions") -> None:
    """Migrate in the connection's transaction. Raises StoreError for a newer or a foreign database."""
    config = _config(connection, versions)
    scripts = ScriptDirectory.from_config(config)
    revision = revision_of(connection)
    if revision is None and inspect(connection).get_table_names():
        raise StoreError(f"{where.database}: an SQLite database of another program; name another file with --db")
    if revision is not None and revision not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreError(
            f"{where.database}: written by a newer grader (schema {revision}, this one knows {NEWEST}); "
            "upgrade the grader, or name another file with --db"
        )
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise LookupError(str(error)) from error  # what `engine.explained` takes for a damaged database


def _config(connection: Connection, versions: Path) -> Config:
    config = Config()
    for option, path in (("script_location", _MIGRATIONS), ("version_locations", versions)):
        config.set_main_option(option, str(path).replace("%", "%%"))
    # Alembic otherwise splits a path at spaces, commas or colons.
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    return config
