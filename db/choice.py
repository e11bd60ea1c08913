"""Which stored verdicts go out, read one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Select, select
from sqlmodel import col

from db.store import Store
from db.tables import ProblemRow, VerdictRow
from grader.verdict.models import Status, Verdict

_ROWS_AT_ONCE = 200
"""A document may have a megabyte."""


@dataclass(frozen=True)
class Choice:
    """None asks for all."""

    author: str | None = None
    problem: str | None = None
    status: Status | None = None


@dataclass(frozen=True)
class Chosen:
    """A stored verdict, and where its problem's file lay."""

    verdict: Verdict | None
    """None for one that another version of the grader wrote."""
    problem_path: Path


def chosen(store: Store, choice: Choice) -> Iterator[Chosen]:
    """The verdicts, oldest first."""
    columns: list[Any] = [col(VerdictRow.id), col(VerdictRow.document), col(ProblemRow.path)]
    query: Select[Any] = select(*columns).join(ProblemRow, col(VerdictRow.problem_hash) == col(ProblemRow.hash))
    for column, wanted in (
        (VerdictRow.author, choice.author),
        (VerdictRow.problem, choice.problem),
        (VerdictRow.status, choice.status),
    ):
        if wanted is not None:
            query = query.where(col(column) == wanted)
    last = 0
    while True:
        with store.reading() as session:  # anew for each batch: a slow reader of ours keeps no writer waiting
            later = query.where(col(VerdictRow.id) > last).order_by(col(VerdictRow.id)).limit(_ROWS_AT_ONCE)
            rows = session.execute(later).all()
        if not rows:
            return
        for verdict_id, document, path in rows:
            last = verdict_id
            yield Chosen(_verdict(verdict_id, document), Path(path))


def _verdict(verdict_id: int, document: str) -> Verdict | None:
    try:
        return Verdict.model_validate_json(document).model_copy(update={"verdict_id": verdict_id})
    except ValidationError:
        return None
