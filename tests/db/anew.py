"""Standings made from verdicts, apart from samples, which processes import that need no database."""

from sqlalchemy import Connection, text

from db import standings


def make_standings_anew(connection: Connection) -> None:
    """All standings from all verdicts, as saving and migrating must have left them."""
    connection.execute(text("delete from standings"))
    standings._insert(connection, connection.execute(text(standings._parts())))
