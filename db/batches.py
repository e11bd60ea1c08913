"""Batches of lines that a server has taken: what waits, and what has ended, in that order."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, delete

from db.engine import among
from db.store import Store
from db.tables import BatchLineRow, BatchRow, verdicts
from grader.verdict.batch_state import BatchState
from grader.verdict.columns import iso_utc

CANCELLED = "cancelled"
"""The message of a line that was cancelled."""


class NewLine(NamedTuple):
    """A line as it arrives; one with a message is refused, and has ended."""

    author: str
    text: str
    message: str | None = None


class Waiting(NamedTuple):
    """A line that waits."""

    id: int
    batch_id: str
    author: str
    owner: str
    priority: int


class Ended(NamedTuple):
    """A line that has ended: with a verdict, or with a message."""

    ended: int
    number: int
    verdict_id: int | None
    document: str | None
    message: str | None


class Batches:
    """The batches in a database. Any thread may call it; all methods raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self, owner: str, key: str | None, digest: str, priority: int, lines: Sequence[NewLine]
    ) -> tuple[str, list[Waiting] | None]:
        """The id of a new batch, and its lines that wait.

        An owner's key that is known gives the id of the batch that has it, and None.
        """
        batch_id = secrets.token_urlsafe(16)
        try:
            with self._store.writing() as session:
                values = {"owner": owner, "idempotency_key": key, "digest": digest, "priority": priority}
                session.execute(insert(BatchRow).values(id=batch_id, created_at=iso_utc(datetime.now(UTC)), **values))
                refused = 0
                rows = []
                for number, line in enumerate(lines, 1):
                    refused += line.message is not None
                    rows.append(
                        {
                            "batch_id": batch_id,
                            "number": number,
                            "author": line.author,
                            "text": None if line.message else line.text,
                            "message": line.message,
                            "ended": refused if line.message else None,
                        }
                    )
                if rows:
                    session.execute(insert(BatchLineRow), rows)
        except IntegrityError:
            found = None if key is None else self.of_key(owner, key)
            if found is None:
                raise
            return found[0], None
        return batch_id, list(self.waiting(batch_id))

    def of_key(self, owner: str, key: str) -> tuple[str, str] | None:
        """The id and digest of the batch that an owner sent under a key."""
        query = select(col(BatchRow.id), col(BatchRow.digest)).where(
            col(BatchRow.owner) == owner, col(BatchRow.idempotency_key) == key
        )
        with self._store.reading() as session:
            row = session.execute(query).first()
            return (row.id, row.digest) if row else None

    def find(self, batch_id: str) -> BatchState | None:
        """A batch in numbers."""
        line = BatchLineRow
        counts = select(func.count(), func.count(col(line.ended)), func.count(col(line.message)))
        statuses = (
            select(verdicts.c.status, func.count())
            .select_from(verdicts)
            .join(BatchLineRow, col(line.verdict_id) == verdicts.c.id)
            .where(col(line.batch_id) == batch_id)
            .group_by(verdicts.c.status)
        )
        with self._store.reading() as session:
            row = session.get(BatchRow, batch_id)
            if row is None:
                return None
            lines, ended, without = session.execute(counts.where(col(line.batch_id) == batch_id)).one()
            return BatchState(
                id=row.id,
                owner=row.owner,
                priority=row.priority,
                created_at=row.created_at,
                lines=lines,
                ended=ended,
                without_verdict=without,
                statuses={str(status): count for status, count in session.execute(statuses)},
            )

    def waiting(self, batch_id: str | None = None) -> Iterator[Waiting]:
        """The lines that wait, of one batch or of all, in the order in which they arrived."""
        line = BatchLineRow
        query = (
            select(col(line.id), col(line.batch_id), col(line.author), col(BatchRow.owner), col(BatchRow.priority))
            .join(BatchRow, col(BatchRow.id) == col(line.batch_id))
            .where(col(line.ended).is_(None))
            .order_by(col(line.id))
        )
        with self._store.reading() as session:
            for row in session.execute(query if batch_id is None else query.where(col(line.batch_id) == batch_id)):
                yield Waiting(*row)

    def waiting_of(self, batch_id: str) -> list[int]:
        """The ids of a batch's lines that wait or are being graded."""
        return [one.id for one in self.waiting(batch_id)]

    def text(self, line_id: int) -> str | None:
        """A line as it was sent; None once it has ended."""
        with self._store.reading() as session:
            found: str | None = session.execute(
                select(col(BatchLineRow.text)).where(col(BatchLineRow.id) == line_id, col(BatchLineRow.ended).is_(None))
            ).scalar()
            return found

    def end(self, line_ids: Sequence[int], *, verdict_id: int | None = None, message: str | None = None) -> int:
        """End lines, with a verdict or with a message. Returns how many had not ended before."""
        with self._store.writing() as session:
            return sum(self._end(session, line_id, verdict_id, message) for line_id in line_ids)

    def _end(self, session: Session, line_id: int, verdict_id: int | None, message: str | None) -> int:
        next_place = text(
            "(select coalesce(max(o.ended), 0) + 1 from batch_lines o where o.batch_id = batch_lines.batch_id)"
        )
        changed = session.connection().execute(
            update(BatchLineRow)
            .where(col(BatchLineRow.id) == line_id, col(BatchLineRow.ended).is_(None))
            .values(ended=next_place, verdict_id=verdict_id, message=message, text=None)
        )
        if changed.rowcount:
            batch_id = select(col(BatchLineRow.batch_id)).where(col(BatchLineRow.id) == line_id).scalar_subquery()
            now = iso_utc(datetime.now(UTC))
            session.execute(update(BatchRow).where(col(BatchRow.id) == batch_id).values(ended_at=now))
        return changed.rowcount

    def cancel_author(self, author: str) -> int:
        """End all lines of an author that wait or are being graded. Returns their number."""
        query = select(col(BatchLineRow.id)).where(
            col(BatchLineRow.ended).is_(None), col(BatchLineRow.author) == author
        )
        with self._store.reading() as session:
            ids = [line_id for line_id in session.execute(query).scalars() if line_id is not None]
        return self.end(ids, message=CANCELLED)

    def ended_of(self, line_ids: Sequence[int]) -> set[int]:
        """Which of these lines have ended."""
        query = select(col(BatchLineRow.id)).where(
            col(BatchLineRow.id).in_(among(line_ids)), col(BatchLineRow.ended).is_not(None)
        )
        with self._store.reading() as session:
            return {one for one in session.execute(query).scalars() if one is not None}

    def ended(self, batch_id: str, after: int, limit: int) -> list[Ended]:
        """Lines of a batch that have ended since, in the order in which they did."""
        line = BatchLineRow
        query = (
            select(col(line.ended), col(line.number), col(line.verdict_id), verdicts.c.document, col(line.message))
            .join(verdicts, verdicts.c.id == col(line.verdict_id), isouter=True)
            .where(col(line.batch_id) == batch_id, col(line.ended) > after)
            .order_by(col(line.ended))
            .limit(limit)
        )
        with self._store.reading() as session:
            return [Ended(*row) for row in session.execute(query)]

    def forget_older(self, days: float) -> None:
        """Delete batches that ended longer ago; their verdicts stay."""
        before = iso_utc(datetime.now(UTC) - timedelta(days=days))
        open_ones = select(col(BatchLineRow.batch_id)).where(col(BatchLineRow.ended).is_(None))
        with self._store.writing() as session:
            # A batch whose lines were all refused ended when it was taken.
            ended_at = func.coalesce(col(BatchRow.ended_at), col(BatchRow.created_at))
            session.execute(delete(BatchRow).where(ended_at < before, col(BatchRow.id).not_in(open_ones)))
