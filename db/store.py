"""Keeps verdicts: each is committed as it is reached, so that killing the grader loses at most the one in progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError
from sqlalchemy import Engine, func
from sqlalchemy.engine import URL
from sqlmodel import Session, col, select

from db import standings
from db.engine import BUSY_TIMEOUT_SECONDS, database_url, explained, make_engine, refuse_other_files, writing
from db.schema import is_current, upgrade
from db.tables import EnvironmentRow, ProblemRow, RunRow, SourceRow, SubmissionRow, VerdictRow
from grader._version import __version__
from grader.errors import StoreError
from grader.verdict.models import Environment, PhaseTiming, Problem, Settings, Status, Submission, Verdict


@dataclass(frozen=True)
class Run:
    """One call of the command that grades; what it reaches is stored under its id."""

    id: int


@dataclass(frozen=True)
class StoredVerdict:
    """A verdict together with the texts that it is about."""

    verdict: Verdict
    submission_source: str
    problem_source: str


class Store:
    """An open database of verdicts. A context manager; closing it twice is harmless."""

    def __init__(self, engine: Engine, where: URL) -> None:
        self._engine = engine
        self._where = where

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        must_exist: bool = False,
        busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS,
    ) -> Self:
        """Open a path or an `sqlite:` URL, creating or migrating it as needed. Raises StoreError in one line."""
        url = database_url(where)
        if must_exist and url.database and not url.query and not Path(url.database).exists():
            raise StoreError(f"{url.database}: there is no such database; `grader grade` makes one, --db names another")
        refuse_other_files(url)
        engine = make_engine(url, busy_timeout_seconds=busy_timeout_seconds)
        try:
            with explained(url):
                with engine.connect() as connection:
                    current = is_current(connection)
                if not current:
                    with writing(engine).begin() as connection:
                        upgrade(connection, url)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._engine.dispose()

    # ------------------------------------------------------------------------------------------------- writing

    @contextmanager
    def run(self, arguments: Sequence[str]) -> Iterator[Run]:
        """Write down that a run begins, and how it ended."""
        row = RunRow(arguments=json.dumps(list(arguments)), grader_version=__version__, started_at=_now())
        with self.writing() as session:
            session.add(row)
            session.flush()
            run = Run(_id(row.id))
        try:
            yield run
        except (KeyboardInterrupt, SystemExit):
            self._finish(run, "interrupted")
            raise
        except BaseException:
            self._finish(run, "failed")
            raise
        self._finish(run, "finished")

    def save(self, verdict: Verdict, submission: Submission, problem: Problem, run: Run) -> Verdict:
        """Commit one verdict and what it is about. Returns it with its id."""
        with self.writing() as session:
            _add_once(session, SourceRow(hash=submission.source_hash, text=submission.source))
            _add_once(
                session,
                ProblemRow(hash=problem.source_hash, problem=problem.id, path=str(problem.path), text=problem.source),
            )
            _add_once(session, _environment_row(verdict.environment))
            row = _verdict_row(verdict, run, _submission_id(session, submission))
            session.add(row)
            session.flush()
            standings.update(session.connection(), _standing_key(verdict, row))
            return verdict.model_copy(update={"verdict_id": row.id})

    def _finish(self, run: Run, outcome: str) -> None:
        with self.writing() as session:
            row = session.get_one(RunRow, run.id)
            row.finished_at, row.outcome = _now(), outcome

    # ------------------------------------------------------------------------------------------------- reading

    def find(
        self, submission: Submission, problem: Problem, environment: Environment, settings: Settings
    ) -> Verdict | None:
        """The newest verdict that still holds: same submission, same texts, same machine, same settings.

        The grader's own failures hold for nothing, and an unreadable file has no text to compare.
        """
        if submission.unreadable:
            return None
        query = (
            select(VerdictRow)
            .where(
                VerdictRow.source_hash == submission.source_hash,
                VerdictRow.problem_hash == problem.source_hash,
                VerdictRow.environment_hash == environment.environment_hash,
                VerdictRow.settings_hash == settings.settings_hash,
                VerdictRow.author == submission.author,
                VerdictRow.problem == submission.problem_id,
                col(VerdictRow.label).is_not_distinct_from(submission.label),
                col(VerdictRow.sample).is_not_distinct_from(submission.sample),
                VerdictRow.status != Status.GRADER_ERROR,
            )
            .order_by(col(VerdictRow.id).desc())
            .limit(1)
        )
        with self.reading() as session:
            row = session.exec(query).first()
            return _verdict(row) if row else None

    def get(self, verdict_id: int) -> StoredVerdict:
        """A verdict by its id. Raises StoreError when there is none."""
        with self.reading() as session:
            row = session.get(VerdictRow, verdict_id) if abs(verdict_id) < 1 << 63 else None  # SQLite holds no more
            if row is None:
                newest = session.exec(select(VerdictRow.id).order_by(col(VerdictRow.id).desc()).limit(1)).first()
                known = f"the newest is {newest}" if newest else "there is none yet"
                raise StoreError(f"{self._where.database}: no verdict {verdict_id}; {known}")
            return StoredVerdict(
                verdict=_verdict(row),
                submission_source=session.get_one(SourceRow, row.source_hash).text,
                problem_source=session.get_one(ProblemRow, row.problem_hash).text,
            )

    def problems(self) -> list[str]:
        """Ids of all that have a verdict, in order."""
        with self.reading() as session:
            return list(session.exec(select(VerdictRow.problem).distinct().order_by(VerdictRow.problem)))

    def source(self, source_hash: str) -> str | None:
        """A submission's text by its SHA-256."""
        with self.reading() as session:
            row = session.get(SourceRow, source_hash)
            return row.text if row else None

    def problem_source(self, problem_hash: str) -> str:
        """A problem's text by its SHA-256."""
        with self.reading() as session:
            return session.get_one(ProblemRow, problem_hash).text

    def document(self, verdict_id: int) -> str:
        """A verdict's JSON as it is stored, whichever version of the grader wrote it."""
        with self.reading() as session:
            return session.get_one(VerdictRow, verdict_id).document

    def documents(self) -> Iterator[tuple[int, str]]:
        """(id, JSON) of every verdict, oldest first, a few in memory at a time."""
        query = select(VerdictRow.id, VerdictRow.document).order_by(col(VerdictRow.id))
        with self.reading() as session:
            for verdict_id, document in session.exec(query.execution_options(yield_per=100)):
                yield _id(verdict_id), document

    def extent(self) -> tuple[int, int]:
        """(how many verdicts there are, the highest id); zeros where there are none."""
        with self.reading() as session:
            count, newest = session.exec(select(func.count(), func.max(VerdictRow.id))).one()
        return count, newest or 0

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that commits as a whole, or not at all; failures come out as StoreErrors."""
        with explained(self._where), Session(writing(self._engine)) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for queries; failures come out as StoreErrors."""
        with explained(self._where), Session(self._engine) as session:
            yield session


# ------------------------------------------------------------------------------------------------------- rows


def _add_once(session: Session, row: SourceRow | ProblemRow | EnvironmentRow) -> None:
    """Rows that are named by the hash of what they hold never change."""
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
    return _id(row.id)


def _environment_row(environment: Environment) -> EnvironmentRow:
    return EnvironmentRow(
        hash=environment.environment_hash,
        device=environment.device,
        device_name=environment.device_name,
        document=environment.model_dump_json(),
    )


def _verdict_row(verdict: Verdict, run: Run, submission_id: int) -> VerdictRow:
    total, forward = _phase(verdict, "total"), _phase(verdict, "forward")
    return VerdictRow(
        run_id=run.id,
        submission_id=submission_id,
        problem=verdict.problem,
        author=verdict.author,
        label=verdict.label,
        sample=verdict.sample,
        device=verdict.device,
        variant=verdict.settings.variant,
        quick=verdict.settings.quick,
        sandbox=verdict.environment.sandbox,
        status=verdict.status,
        forward_status=verdict.forward.status if verdict.forward else None,
        backward_status=verdict.backward.status if verdict.backward else None,
        total_speedup=total.speedup if total else None,
        total_ci_low=total.ci_low if total else None,
        total_ci_high=total.ci_high if total else None,
        total_bound_speedup=_bound_speedup(total),
        forward_speedup=forward.speedup if forward else None,
        forward_ci_low=forward.ci_low if forward else None,
        forward_ci_high=forward.ci_high if forward else None,
        forward_bound_speedup=_bound_speedup(forward),
        strict_fp32=verdict.settings.strict_fp32,
        labels=json.dumps(list(verdict.labels)),
        source_hash=verdict.source_hash,
        problem_hash=verdict.problem_hash,
        environment_hash=verdict.environment.environment_hash,
        settings_hash=verdict.settings.settings_hash,
        created_at=_iso(verdict.created_at),
        document=verdict.model_dump_json(exclude={"verdict_id"}),
    )


def _phase(verdict: Verdict, phase: str) -> PhaseTiming | None:
    return getattr(verdict.timing, phase) if verdict.timing else None


def _bound_speedup(phase: PhaseTiming | None) -> float | None:
    return phase.reference_ms / phase.bound_ms if phase and phase.bound_ms else None


def _standing_key(verdict: Verdict, row: VerdictRow) -> dict[str, object]:
    return {
        "problem": row.problem,
        "problem_hash": row.problem_hash,
        "device_name": verdict.environment.device_name,
        "author": row.author,
        "label": row.label,
        "strict_fp32": row.strict_fp32,
    }


def _verdict(row: VerdictRow) -> Verdict:
    try:
        return Verdict.model_validate_json(row.document).model_copy(update={"verdict_id": row.id})
    except ValidationError as error:
        raise StoreError(
            f"verdict {row.id} was written by another version of the grader; grade it again with --regrade"
        ) from error


def _now() -> str:
    return _iso(datetime.now(UTC))


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _id(row_id: int | None) -> int:
    assert row_id is not None, "a flushed row has an id"
    return row_id
