"""Ends what an author, a run or a batch has, wherever it is graded with this database."""

from __future__ import annotations

from sqlalchemy import select
from sqlmodel import col

from db.batches import CANCELLED, Batches
from db.presence import lives
from db.store import Store
from db.tables import CancelRow, GraderRow
from grader.errors import UserError


def cancel_run(store: Store, run: int) -> None:
    """Ask a run that is grading to end. Raises UserError if it is not."""
    if run not in (known := _alive(store)):
        there = f"these are: {', '.join(map(str, known))}" if known else "none is"
        raise UserError(f"run {run} is not grading now; {there}")
    _ask(store, [run], None)


def cancel_author(store: Store, author: str) -> tuple[int, int]:
    """End an author's lines that wait in batches, and ask all runs that grade to end theirs.

    Returns how many lines and how many runs.
    """
    lines = Batches(store).cancel_author(author)
    runs = _alive(store)
    _ask(store, runs, author)
    return lines, len(runs)


def cancel_batch(store: Store, batch_id: str) -> int:
    """End the lines of a batch that have not ended, and return their number. Raises UserError."""
    batches = Batches(store)
    if batches.find(batch_id) is None:
        raise UserError(f"there is no batch {batch_id}")
    return batches.end(batches.waiting_of(batch_id), message=CANCELLED)


def _alive(store: Store) -> list[int]:
    with store.reading() as session:
        return [grader.run_id for grader in session.execute(select(GraderRow)).scalars() if lives(grader)]


def _ask(store: Store, runs: list[int], author: str | None) -> None:
    with store.writing() as session:
        known = session.execute(select(col(GraderRow.run_id)).where(col(GraderRow.run_id).in_(runs))).scalars().all()
        session.add_all(CancelRow(run_id=run, author=author) for run in known)
