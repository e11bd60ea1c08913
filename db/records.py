"""Converts values to rows: a verdict with all that it refers to."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import insert
from sqlmodel import Session, col, select

from db import standings
from db.tables import EnvironmentRow, ProblemRow, SourceRow, SubmissionRow, verdicts
from grader.verdict.columns import STORED, Cell, Figure, iso_utc
from grader.verdict.models import Problem, Submission, Verdict


def add(session: Session, verdict: Verdict, submission: Submission, problem: Problem, run_id: int) -> int:
    """Insert a verdict with all that it refers to, and update its standing. Returns the verdict's id."""
    _add_once(session, SourceRow(hash=submission.source_hash, text=submission.source))
    _add_once(
        session, ProblemRow(hash=problem.source_hash, problem=problem.id, path=str(problem.path), text=problem.source)
    )
    environment = verdict.environment
    _add_once(
        session,
        EnvironmentRow(
            hash=environment.environment_hash,
            device=environment.device,
            device_name=environment.device_name,
            document=environment.kind_json,
        ),
    )
    row = {
        "run_id": run_id,
        "submission_id": _submission_id(session, submission),
        "document": verdict.model_dump_json(exclude={"verdict_id"}),
        **{column.name: _cell(column.value(verdict)) for column in STORED},
    }
    verdict_id: int = session.connection().execute(insert(verdicts), row).lastrowid
    standings.update(session.connection(), _standing_key(verdict))
    return verdict_id


def has(session: Session, verdict: Verdict) -> bool:
    """Whether this very verdict is stored: one on the same submission, reached at the same microsecond."""
    c, created_at = verdicts.c, iso_utc(verdict.created_at)
    same = select(c.id).where(c.source_hash == verdict.source_hash, c.created_at == created_at)
    labelled = c.label.is_not_distinct_from(verdict.label), c.sample.is_not_distinct_from(verdict.sample)
    named = same.where(c.problem == verdict.problem, c.author == verdict.author, *labelled)
    return session.execute(named).first() is not None


def _standing_key(verdict: Verdict) -> dict[str, object]:
    """The values of `db.standings`' key columns for a verdict."""
    return {
        "problem": verdict.problem,
        "problem_hash": verdict.problem_hash,
        "device_name": verdict.environment.device_name,
        "author": verdict.author,
        "label": verdict.label,
        "strict_fp32": verdict.settings.strict_fp32,
        "precision": verdict.settings.precision,
    }


def submission(row: SubmissionRow, source: SourceRow) -> Submission:
    """The submission as it was when it was graded first."""
    return Submission(
        author=row.author, problem_id=row.problem, label=row.label, sample=row.sample, path=row.path, source=source.text
    )


def problem(row: ProblemRow) -> Problem:
    """The problem as it was when it was graded first."""
    return Problem(id=row.problem, path=Path(row.path), source=row.text)


def flushed(row_id: int | None) -> int:
    """The id of a row that has been flushed."""
    assert row_id is not None, "a flushed row has an id"
    return row_id


def _cell(value: Figure) -> Cell:
    """A column's value as the database has it: tuples of texts are JSON lists."""
    return json.dumps(list(value)) if isinstance(value, tuple) else value


def _add_once(session: Session, row: SourceRow | ProblemRow | EnvironmentRow) -> None:
    """Add the row unless it is there. The hash of its content is its key, so that it never changes."""
    if session.get(type(row), row.hash) is None:
        session.add(row)
        session.flush()


def _submission_id(session: Session, submission: Submission) -> int:
    known = session.exec(
        select(SubmissionRow).where(
            SubmissionRow.author == submission.author,
            SubmissionRow.problem == submission.problem_id,
            col(SubmissionRow.label).is_not_distinct_from(submission.label),
            col(SubmissionRow.sample).is_not_distinct_from(submission.sample),
            SubmissionRow.source_hash == submission.source_hash,
        )
    ).first()
    row = known or SubmissionRow(
        author=submission.author,
        problem=submission.problem_id,
        label=submission.label,
        sample=submission.sample,
        source_hash=submission.source_hash,
        path=submission.path,
    )
    session.add(row)
    session.flush()
    return flushed(row.id)
