"""Selects stored verdicts for an export and reads them one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlmodel import col

from db.store import Store
from db.tables import ProblemRow, verdicts
from grader.verdict.models import Status, Verdict

_ROWS_AT_ONCE = 200
"""A document may take a megabyte of memory."""


@dataclass(frozen=True)
class Choice:
    """A filter on stored verdicts; None means any."""

    author: str | None = None
    problem: str | None = None
    status: Status | None = None


@dataclass(frozen=True)
class Chosen:
    """A stored verdict with the path of its problem's file."""

    verdict: Verdict | None
    """None if another version of the grader wrote it."""
    problem_path: Path


def chosen(store: Store, choice: Choice) -> Iterator[Chosen]:
    """The selected verdicts, oldest first."""
    query = select(verdicts.c.id, verdicts.c.document, col(ProblemRow.path)).join(ProblemRow)
    for column, wanted in (
        (verdicts.c.author, choice.author),
        (verdicts.c.problem, choice.problem),
        (verdicts.c.status, choice.status),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    last = 0
    while True:
        with store.reading() as session:  # one per batch, so that a slow reader delays no writer
            later = query.where(verdicts.c.id > last).order_by(verdicts.c.id).limit(_ROWS_AT_ONCE)
            rows = session.execute(later).all()
        if not rows:
            return
        for verdict_id, document, path in rows:
            last = verdict_id
            verdict = Verdict.read(document)
            yield Chosen(verdict and verdict.model_copy(update={"verdict_id": verdict_id}), Path(path))
