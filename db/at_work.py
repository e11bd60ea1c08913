"""The graders that are at work with a database, on this machine and on others."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from pydantic import ValidationError
from sqlalchemy import select
from sqlmodel import col

from db.presence import Work, lives, machine
from db.store import Store
from db.tables import GraderRow, RunRow


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
    work: Work | None
    """None until it has said what it does."""


def at_work(store: Store) -> list[AtWork]:
    """The runs that grade now, oldest first."""
    query = select(GraderRow, RunRow).join(RunRow, col(RunRow.id) == col(GraderRow.run_id)).order_by(col(RunRow.id))
    with store.reading() as session:
        return [
            AtWork(
                run=grader.run_id,
                command=shlex.join(map(str, json.loads(run.arguments))),
                here=grader.machine == machine(),
                process=grader.process,
                priority=grader.priority,
                started_at=run.started_at,
                work=_work(grader.status),
            )
            for grader, run in session.execute(query)
            if lives(grader)
        ]


def _work(text: str | None) -> Work | None:
    """None also for what another version of the grader said."""
    try:
        return None if text is None else Work.model_validate_json(text)
    except ValidationError:
        return None
