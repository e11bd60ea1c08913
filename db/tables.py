"""The tables, in schema version 0003. A change here needs a new file in migrations/versions.

Rows are not the values that the grader talks about: table models do not validate, so a verdict goes in and comes out as
the JSON document of `grader.verdict.models.Verdict`; the columns beside it are copies to search and rank by.
Times are text in ISO 8601, UTC, because SQLite has no type for them and such text sorts as time does.
"""

from __future__ import annotations

from sqlalchemy import Index, UniqueConstraint, false
from sqlmodel import Field, SQLModel

FIGURES = (
    "id",
    "problem",
    "problem_hash",
    "device",
    "author",
    "label",
    "sample",
    "strict_fp32",
    "variant",
    "status",
    "forward_status",
    "quick",
    "sandbox",
    "created_at",
    "labels",
    "source_hash",
    "environment_hash",
    "total_speedup",
    "total_ci_low",
    "total_ci_high",
    "total_bound_speedup",
    "forward_speedup",
    "forward_ci_low",
    "forward_ci_high",
    "forward_bound_speedup",
)
"""All that a board needs of a verdict, in an index of its own: a row's document fills pages that would be read too."""


class SourceRow(SQLModel, table=True):
    """A submission's text, once however many submissions have it."""

    __tablename__ = "sources"

    hash: str = Field(primary_key=True)
    """SHA-256, hexadecimal."""
    text: str


class SubmissionRow(SQLModel, table=True):
    """A text under an author's name."""

    __tablename__ = "submissions"
    __table_args__ = (UniqueConstraint("author", "problem", "label", "sample", "source_hash"),)

    id: int | None = Field(default=None, primary_key=True)
    author: str
    problem: str
    label: str | None = None
    sample: int | None = None
    source_hash: str = Field(foreign_key="sources.hash", index=True)
    path: str
    """Where it lay when it was graded first."""


class ProblemRow(SQLModel, table=True):
    """A problem's text; one id may have had several."""

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
    """JSON of `grader.verdict.models.Environment`."""


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


class VerdictRow(SQLModel, table=True):
    """A verdict, whole, and what it is searched and ranked by."""

    __tablename__ = "verdicts"
    __table_args__ = (
        Index("ix_verdicts_reuse", "source_hash", "problem_hash", "environment_hash", "settings_hash"),
        Index("ix_verdicts_board", "problem", "device", "status"),
        Index("ix_verdicts_author", "author", "label", "problem"),
        Index("ix_verdicts_figures", *FIGURES),
    )

    id: int | None = Field(default=None, primary_key=True)
    run_id: int = Field(foreign_key="runs.id")
    submission_id: int = Field(foreign_key="submissions.id", index=True)
    problem: str
    author: str
    label: str | None = None
    sample: int | None = None
    device: str
    variant: str | None = None
    """The only variant that was graded, where `--variant` asked for one."""
    quick: bool
    sandbox: str
    status: str
    forward_status: str | None = None
    backward_status: str | None = None
    total_speedup: float | None = None
    total_ci_low: float | None = None
    total_ci_high: float | None = None
    total_bound_speedup: float | None = None
    """What the speedup would be at the speed of light."""
    forward_speedup: float | None = None
    forward_ci_low: float | None = None
    forward_ci_high: float | None = None
    forward_bound_speedup: float | None = None
    strict_fp32: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    labels: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """A JSON list."""
    source_hash: str = Field(foreign_key="sources.hash")
    problem_hash: str = Field(foreign_key="problems.hash")
    environment_hash: str = Field(foreign_key="environments.hash")
    settings_hash: str
    created_at: str
    document: str
    """JSON of `grader.verdict.models.Verdict`, without the id."""


class StandingRow(SQLModel, table=True):
    """What an author's texts under one label come to, for one text of a problem on one device. See `db.standings`."""

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
    device: str
    samples: int
    """Texts and samples that were graded, each by its newest verdict."""
    right_total: int
    """How many of them are correct."""
    right_forward: int
    """How many of them have a right forward."""
    total_id: int | None = None
    """The best of the correct ones. No foreign key, so that verdicts can be deleted by hand."""
    forward_id: int | None = None
    newest_id: int


class LabelledStandingRow(SQLModel, table=True):
    """What a standing comes to by those of its verdicts that have exactly these labels."""

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
    """Its place among all that count in the standing, 1 the best."""
    forward_id: int | None = None
    forward_place: int | None = None
