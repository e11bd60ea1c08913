"""Runs of the grader: the latest with their progress, and those that are at work now."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlmodel import col

from db.presence import RunProgress, lives, machine
from db.store import Store
from db.tables import GraderRow, RunRow, verdicts


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


@dataclass(frozen=True)
class AtWork:
    """A run that grades now."""

    run: int
    command: str
    here: bool
    """Whether it runs on this machine."""
    process: int
    priority: int
    started_at: str
    work: RunProgress | None
    """None until it has said what it does."""


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
    return [
        _state(run, [(status, count, last) for run_id, status, count, last in counts if run_id == run.id])
        for run in runs
    ]


def at_work(store: Store) -> list[AtWork]:
    """The runs that grade now, oldest first."""
    query = select(GraderRow, RunRow).join(RunRow, col(RunRow.id) == col(GraderRow.run_id)).order_by(col(RunRow.id))
    with store.reading() as session:
        return [
            AtWork(
                run=grader.run_id,
                command=_command(run),
                here=grader.machine == machine(),
                process=grader.process,
                priority=grader.priority,
                started_at=run.started_at,
                work=RunProgress.read(grader.status),
            )
            for grader, run in session.execute(query)
            if lives(grader)
        ]


def run_ids(store: Store) -> list[int]:
    """The numbers of all runs, oldest first."""
    with store.reading() as session:
        return [run or 0 for run in session.execute(select(col(RunRow.id)).order_by(col(RunRow.id))).scalars()]


def _command(run: RunRow) -> str:
    return shlex.join(map(str, json.loads(run.arguments)))


def _state(run: RunRow, counts: list[tuple[str, int, str]]) -> RunState:
    return RunState(
        id=run.id or 0,
        command=_command(run),
        started_at=run.started_at,
        outcome=run.outcome,
        verdicts=sum(count for _, count, _ in counts),
        statuses=tuple((status, count) for status, count, _ in counts),
        last_at=max((last for _, _, last in counts), default=None),
    )
