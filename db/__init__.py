"""Verdicts that last: tables, the store that writes them, the leaderboards read from them."""

from db.claims import Claims
from db.keeper import Keeper
from db.store import Run, Store, StoredVerdict

__all__ = ["Claims", "Keeper", "Run", "Store", "StoredVerdict"]
