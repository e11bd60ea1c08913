"""The store of verdicts. Each is committed at once: a killed grader loses at most the one in progress."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from pydantic import ValidationError
from sqlalchemy import Engine, func, select
from sqlalchemy.engine import URL
from sqlmodel import Session, col, delete

from db import records, reuse
from db.engine import BUSY_TIMEOUT_SECONDS, among, database_url, explained, make_engine, refuse_other_files, writing
from db.schema import is_current
from db.tables import ClaimRow, ProblemRow, RunRow, SourceRow, SubmissionRow, verdicts
from grader._version import __version__
from grader.errors import ClaimLost, StoreBusy, StoreError
from grader.verdict.columns import iso_utc
from grader.verdict.models import Environment, Problem, Settings, Submission, Verdict
from grader.verdict.value import digest

log = logging.getLogger("grader.db")

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One call of `grader grade`; its verdicts are stored under its id."""

    id: int


@dataclass(frozen=True)
class StoredVerdict:
    """A verdict with the sources of its submission and its problem."""

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
                    from db.upgrade import upgrade

                    with writing(engine).begin() as connection:
                        upgrade(connection, url)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, url)

    @property
    def path(self) -> Path:
        """The database's file."""
        return Path(self._where.database or "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._engine.dispose()

    # ------------------------------------------------------------------------------------------------- writing

    @contextmanager
    def run(self, arguments: Sequence[str], say: Callable[[str], None] = log.warning) -> Iterator[Run]:
        """Record that a run begins, and how it ends. `say` prints a line for the user."""
        row = RunRow(arguments=json.dumps(list(arguments)), grader_version=__version__, started_at=_now())
        with self.writing() as session:
            session.add(row)
            session.flush()
            run = Run(records.flushed(row.id))
        try:
            yield run
        except BaseException as error:
            try:
                self._finish(run, "interrupted" if isinstance(error, KeyboardInterrupt | SystemExit) else "failed")
            except StoreError as unrecorded:  # hides no error before it, which may name a file with verdicts
                log.warning("how run %d ended is not recorded: %s", run.id, unrecorded)
            raise
        self.patiently(lambda: self._finish(run, "finished"), say)

    def save(
        self, verdict: Verdict, submission: Submission, problem: Problem, run: Run, *, claim: str | None = None
    ) -> Verdict:
        """Commit one verdict with its sources, and the end of the claim on it. Returns it with its id.

        Raises ClaimLost if the claim has ended: another run took it over, and has stored its verdict as a rule.
        """
        with self.writing() as session:
            if claim is not None:
                ended = session.connection().execute(delete(ClaimRow).where(col(ClaimRow.key) == claim))
                if not ended.rowcount:
                    raise ClaimLost("another grader took over the claim and ended it; use its verdict")
            verdict_id = records.add(session, verdict, submission, problem, run.id)
        return verdict.model_copy(update={"verdict_id": verdict_id})

    def of_run(self, run: Run) -> list[tuple[Verdict, Submission, Problem]]:
        """Everything saved under a run, oldest first, each verdict with its request."""
        c = verdicts.c
        query = select(c.document, c.submission_id, c.source_hash, c.problem_hash).where(c.run_id == run.id)
        with self.reading() as session:
            rows = session.execute(query.order_by(c.id)).all()
            return [
                (
                    Verdict.model_validate_json(row.document),
                    records.submission(
                        session.get_one(SubmissionRow, row.submission_id), session.get_one(SourceRow, row.source_hash)
                    ),
                    records.problem(session.get_one(ProblemRow, row.problem_hash)),
                )
                for row in rows
            ]

    def _finish(self, run: Run, outcome: str) -> None:
        with self.writing() as session:
            row = session.get_one(RunRow, run.id)
            row.finished_at, row.outcome = _now(), outcome

    # ------------------------------------------------------------------------------------------------- reading

    def find(
        self, submission: Submission, problem: Problem, environments: Sequence[Environment], settings: Settings
    ) -> Verdict | None:
        """The newest verdict on the same submission, in one of these environments and with these settings.

        A grader error is never reused, and neither is a verdict on an unreadable file: it has no source to compare.
        """
        if submission.unreadable:
            return None
        names = {"author": submission.author, "label": submission.label, "sample": submission.sample}
        return self._newest(reuse.OF_SUBMISSION, {**reuse.values(submission, problem, environments, settings), **names})

    def find_later(
        self,
        submission: Submission,
        problem: Problem,
        environments: Sequence[Environment],
        settings: Settings,
        after: int,
    ) -> Verdict | None:
        """`find` for any author and label, among verdicts whose id is higher than `after`."""
        if submission.unreadable:
            return None
        return self._newest(reuse.LATER, {**reuse.values(submission, problem, environments, settings), "after": after})

    def _newest(self, query: str, values: Mapping[str, object]) -> Verdict | None:
        with explained(self._where), closing(self._engine.raw_connection()) as connection:
            cursor = connection.cursor()
            row = cursor.execute(query, values).fetchone()
            cursor.close()
        return _verdict(*row) if row else None

    def get(self, verdict_id: int) -> StoredVerdict:
        """A verdict by its id. Raises StoreError if there is none."""
        found = select(verdicts.c.id, verdicts.c.document, verdicts.c.source_hash, verdicts.c.problem_hash)
        with self.reading() as session:
            row = (
                session.execute(found.where(verdicts.c.id == verdict_id)).first()
                if abs(verdict_id) < 1 << 63  # SQLite has no larger integer
                else None
            )
            if row is None:
                newest = session.execute(select(func.max(verdicts.c.id))).scalar()
                known = f"the newest is {newest}" if newest else "there is none yet"
                raise StoreError(f"{self._where.database}: no verdict {verdict_id}; {known}")
            return StoredVerdict(
                verdict=_verdict(row.id, row.document),
                submission_source=_text(session.get_one(SourceRow, row.source_hash)),
                problem_source=_text(session.get_one(ProblemRow, row.problem_hash)),
            )

    def problems(self) -> list[str]:
        """Ids of all problems that have a verdict, sorted."""
        with self.reading() as session:
            query = select(verdicts.c.problem).distinct().order_by(verdicts.c.problem)
            return list(session.execute(query).scalars())

    def sources(self, hashes: Iterable[str]) -> dict[str, str]:
        """The sources of submissions by their SHA-256, those that are known."""
        with self.reading() as session:
            rows = session.execute(select(SourceRow).where(col(SourceRow.hash).in_(among(hashes)))).scalars()
            return {row.hash: _text(row) for row in rows}

    def problem_source(self, problem_hash: str) -> str:
        """A problem's source by its SHA-256."""
        with self.reading() as session:
            return _text(session.get_one(ProblemRow, problem_hash))

    def documents(self, ids: Sequence[int] | None = None) -> Iterator[tuple[int, str]]:
        """(id, JSON) of every verdict, or of those with these ids, oldest first, a few in memory at a time.

        The JSON is as it is stored, whichever version of the grader wrote it.
        """
        query = select(verdicts.c.id, verdicts.c.document).order_by(verdicts.c.id)
        if ids is not None:
            query = query.where(verdicts.c.id.in_(among(ids)))
        with self.reading() as session:
            for row in session.execute(query.execution_options(yield_per=100)):
                yield row.id, row.document

    def extent(self) -> tuple[int, int]:
        """(number of verdicts, the highest id); zeros if there are none."""
        with self.reading() as session:
            count, newest = session.execute(select(func.count(verdicts.c.id), func.max(verdicts.c.id))).one()
        return count, newest or 0

    def patiently(self, action: Callable[[], T], say: Callable[[str], None]) -> T:
        """The action's result, tried again for as long as another process keeps the database locked.

        `say` prints a line for the user, once. Raises what the action raises, but StoreBusy.
        """
        waiting = False
        while True:
            try:
                return action()
            except StoreBusy:
                if not waiting:
                    say(f"{self.path}: another process keeps the database locked; waiting until it is done")
                waiting = True

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that commits as a whole, or not at all. Raises StoreError if the database fails."""
        with explained(self._where), Session(writing(self._engine)) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for queries. Raises StoreError if the database, or what it holds, cannot be read."""
        with explained(self._where), Session(self._engine) as session:
            yield session


def _text(row: SourceRow | ProblemRow) -> str:
    """The row's source. Raises ValueError if it is damaged."""
    if digest(row.text) != row.hash:
        raise ValueError(f"the source {row.hash[:12]} does not have its SHA-256")
    return row.text


def _verdict(verdict_id: int, document: str) -> Verdict:
    try:
        return Verdict.model_validate_json(document).model_copy(update={"verdict_id": verdict_id})
    except ValidationError as error:
        raise StoreError(
            f"verdict {verdict_id} was written by another version of the grader, or is damaged; grade it again with "
            "--regrade"
        ) from error


def _now() -> str:
    return iso_utc(datetime.now(UTC))
