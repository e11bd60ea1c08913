"""The tables, in the newest schema version. A change here needs a new file in migrations/versions.

Table models do not validate. A verdict is stored as the JSON document of `grader.verdict.models.Verdict`; the columns
beside it are copies to search and rank by, and come from `grader.verdict.columns`. Times are text in ISO 8601, UTC:
SQLite has no type for them, and such text sorts as time does.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, Table, UniqueConstraint, text
from sqlalchemy import Column as TableColumn
from sqlmodel import Field, SQLModel

from grader.verdict.columns import STORED, Column


class SourceRow(SQLModel, table=True):
    """A submission's source, stored once however many submissions have it."""

    __tablename__ = "sources"

    hash: str = Field(primary_key=True)
    """SHA-256, hexadecimal."""
    text: str


class SubmissionRow(SQLModel, table=True):
    """A source under an author's name."""

    __tablename__ = "submissions"
    __table_args__ = (UniqueConstraint("author", "problem", "label", "sample", "source_hash"),)

    id: int | None = Field(default=None, primary_key=True)
    author: str
    problem: str
    label: str | None = None
    sample: int | None = None
    source_hash: str = Field(foreign_key="sources.hash", index=True)
    path: str
    """The file's path when it was graded first."""


class ProblemRow(SQLModel, table=True):
    """A problem's source; one problem id may have had several."""

    __tablename__ = "problems"

    hash: str = Field(primary_key=True)
    """SHA-256, hexadecimal."""
    problem: str = Field(index=True)
    path: str
    text: str


class EnvironmentRow(SQLModel, table=True):
    """A machine with its versions."""

    __tablename__ = "environments"

    hash: str = Field(primary_key=True)
    """`Environment.environment_hash`."""
    device: str
    device_name: str
    document: str
    """`Environment.kind_json`."""


class RunRow(SQLModel, table=True):
    """One call of `grader grade`."""

    __tablename__ = "runs"

    id: int | None = Field(default=None, primary_key=True)
    arguments: str
    """A JSON list, as typed."""
    grader_version: str
    started_at: str
    finished_at: str | None = None
    """Absent while it runs, and for ever if it was killed."""
    outcome: str | None = None
    """`finished`, `interrupted` or `failed`."""


class GraderRow(SQLModel, table=True):
    """The process behind a run, while it grades. See `db.claims`."""

    __tablename__ = "graders"

    run_id: int = Field(foreign_key="runs.id", primary_key=True)
    machine: str
    """Equal for processes that see each other in /proc."""
    process: int
    """Process id."""
    process_started: int
    """Clock ticks since the machine's start: another process may get the same id."""
    seen_at: str
    """Time of its last sign of life."""
    priority: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """Others with a lower one on its machine wait."""
    status: str | None = None
    """Its present work, as JSON: `db.presence.RunProgress`."""


class ClaimRow(SQLModel, table=True):
    """A source that a run is grading, with its problem, environment and settings."""

    __tablename__ = "claims"
    __table_args__ = {"sqlite_with_rowid": False}

    key: str = Field(primary_key=True)
    """SHA-256 of what two requests with one verdict have in common."""
    run_id: int = Field(foreign_key="graders.run_id", ondelete="CASCADE", index=True)


class ProfileRow(SQLModel, table=True):
    """A profile of a source beside the reference, on one kind of device."""

    __tablename__ = "profiles"
    __table_args__ = (Index("ix_profiles_of", "source_hash", "problem_hash", "device_name", "precision"),)

    id: int | None = Field(default=None, primary_key=True)
    source_hash: str
    """Not a foreign key: a source may be profiled that was never graded."""
    problem_hash: str
    device_name: str
    precision: str
    created_at: str
    document: str
    """The JSON of `grader.verdict.profiles.Profile`."""


class CancelRow(SQLModel, table=True):
    """A request to a running grader to end gradings. See `db.cancels`."""

    __tablename__ = "cancels"

    id: int | None = Field(default=None, primary_key=True)
    run_id: int = Field(foreign_key="graders.run_id", ondelete="CASCADE")
    author: str | None = None
    """Whose submissions; absent: all of the run."""


class BatchRow(SQLModel, table=True):
    """Lines that a server has taken at once. See `db.batches`."""

    __tablename__ = "batches"
    __table_args__ = (UniqueConstraint("owner", "idempotency_key"),)

    id: str = Field(primary_key=True)
    """Random, so that it cannot be guessed."""
    owner: str
    """The name of the token that sent it."""
    idempotency_key: str | None = None
    """The sender's own name for it; sending it again makes no second batch."""
    digest: str
    """SHA-256 of what was sent."""
    priority: int
    created_at: str
    ended_at: str | None = None
    """When its latest line ended; lines that were refused do not count."""


class BatchLineRow(SQLModel, table=True):
    """One line of a batch: it waits, or has ended with a verdict or with a message."""

    __tablename__ = "batch_lines"
    __table_args__ = (
        Index("ix_batch_lines_ended", "batch_id", "ended"),
        Index("ix_batch_lines_waiting", "ended", "author"),
    )

    id: int | None = Field(default=None, primary_key=True)
    batch_id: str = Field(foreign_key="batches.id", ondelete="CASCADE")
    number: int
    """In the batch, from 1."""
    author: str
    text: str | None = None
    """The line as JSON, until it has ended."""
    ended: int | None = None
    """Its place among the batch's lines that have ended, from 1; absent while it waits."""
    verdict_id: int | None = None
    """Not a foreign key, so that verdicts can be deleted by hand."""
    message: str | None = None
    """Why it has no verdict."""


_TYPES: dict[type, type[String] | type[Integer] | type[Float[float]] | type[Boolean]] = {
    str: String,
    int: Integer,
    float: Float,
    bool: Boolean,
}


def _stored(column: Column) -> TableColumn[object]:
    return TableColumn(
        column.name,
        _TYPES[column.cell_type](),
        *([ForeignKey(column.references)] if column.references else []),
        nullable=column.optional,
        server_default=None if column.default is None else text(column.default),
    )


_INDEXED = sorted((column for column in STORED if column.index_position), key=lambda one: one.index_position or 0)

verdicts = Table(
    "verdicts",
    SQLModel.metadata,
    TableColumn("id", Integer, primary_key=True),
    TableColumn("run_id", Integer, ForeignKey("runs.id"), nullable=False),
    TableColumn("submission_id", Integer, ForeignKey("submissions.id"), nullable=False, index=True),
    *map(_stored, STORED),
    TableColumn("document", String, nullable=False),
    Index("ix_verdicts_reuse", "source_hash", "problem_hash", "environment_hash", "settings_hash"),
    Index("ix_verdicts_board", "problem", "device", "status"),
    Index("ix_verdicts_author", "author", "label", "problem"),
    Index("ix_verdicts_run", "run_id", "status", "created_at"),
    Index("ix_verdicts_figures", "id", *(column.name for column in _INDEXED)),
)
"""Verdicts. `document` is the JSON of `grader.verdict.models.Verdict` without the id; tuples of texts are JSON lists.

`ix_verdicts_figures` has all that a board needs of a verdict, because a row's document fills pages that would be read
too.
"""


class StandingRow(SQLModel, table=True):
    """An author's sources under one label, for one source of a problem on one device. See `db.standings`."""

    __tablename__ = "standings"
    __table_args__ = (
        Index("ix_standings_author", "author", "label", "problem"),
        Index("ix_standings_newest", "problem", "newest_id", "problem_hash"),
    )

    id: int | None = Field(default=None, primary_key=True)
    problem: str
    problem_hash: str = Field(foreign_key="problems.hash")
    device_name: str
    author: str
    label: str | None = None
    strict_fp32: bool
    precision: str = Field(default="fp32", sa_column_kwargs={"server_default": "fp32"})
    device: str
    samples: int
    """How many sources and samples were graded, each by its newest verdict."""
    right_total: int
    """How many of them are correct."""
    right_forward: int
    """How many of them have a correct forward."""
    total_id: int | None = None
    """The best of the correct ones. Not a foreign key, so that verdicts can be deleted by hand."""
    forward_id: int | None = None
    newest_id: int


class LabelledStandingRow(SQLModel, table=True):
    """The part of a standing whose verdicts have exactly these labels."""

    __tablename__ = "standings_by_labels"
    __table_args__ = {"sqlite_with_rowid": False}

    standing_id: int = Field(foreign_key="standings.id", ondelete="CASCADE", primary_key=True)
    labels: str = Field(primary_key=True)
    """A JSON list, as in `verdicts`."""
    samples: int
    right_total: int
    right_forward: int
    total_id: int | None = None
    """The best of the correct ones."""
    total_place: int | None = None
    """Its place among all verdicts of the standing that count, 1 the best."""
    forward_id: int | None = None
    forward_place: int | None = None
