"""Verdicts that last: tables, the store that writes them, the leaderboards read from them."""

from db.keeper import Keeper
from db.store import Run, Store, StoredVerdict

__all__ = ["Keeper", "Run", "Store", "StoredVerdict"]
