"""Progress of the latest calls of `grader grade`."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlmodel import col

from db.store import Store
from db.tables import RunRow, verdicts


@dataclass(frozen=True)
class RunState:
    """One call of `grader grade`."""

    id: int
    command: str
    started_at: str
    outcome: str | None
    """None while it runs, and for ever if it was killed."""
    verdicts: int
    statuses: tuple[tuple[str, int], ...]
    """Most frequent first."""
    last_at: str | None
    """Time of its newest verdict."""


def recent_runs(store: Store, limit: int) -> list[RunState]:
    """The latest runs, newest first."""
    counting = (
        select(verdicts.c.run_id, verdicts.c.status, func.count(), func.max(verdicts.c.created_at))
        .where(verdicts.c.run_id.in_(select(col(RunRow.id)).order_by(col(RunRow.id).desc()).limit(limit)))
        .group_by(verdicts.c.run_id, verdicts.c.status)
        .order_by(func.count().desc())
    )
    with store.reading() as session:
        runs = session.execute(select(RunRow).order_by(col(RunRow.id).desc()).limit(limit)).scalars().all()
        counts = session.execute(counting).all()
    return [_state(run, [(status, count, last) for of, status, count, last in counts if of == run.id]) for run in runs]


def run_ids(store: Store) -> list[int]:
    """The numbers of all runs, oldest first."""
    with store.reading() as session:
        return [run or 0 for run in session.execute(select(col(RunRow.id)).order_by(col(RunRow.id))).scalars()]


def _state(run: RunRow, counts: list[tuple[str, int, str]]) -> RunState:
    return RunState(
        id=run.id or 0,
        command=shlex.join(map(str, json.loads(run.arguments))),
        started_at=run.started_at,
        outcome=run.outcome,
        verdicts=sum(count for _, count, _ in counts),
        statuses=tuple((status, count) for status, count, _ in counts),
        last_at=max((last for _, _, last in counts), default=None),
    )
