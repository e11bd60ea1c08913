"""The first schema: sources, submissions, problems, environments, runs, verdicts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "environments",
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("device_name", sa.String(), nullable=False),
        sa.Column("document", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_table(
        "problems",
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_index("ix_problems_problem", "problems", ["problem"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("arguments", sa.String(), nullable=False),
        sa.Column("grader_version", sa.String(), nullable=False),
        sa.Column("started_at", sa.String(), nullable=False),
        sa.Column("finished_at", sa.String(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "sources",
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=True),
        sa.Column("sample", sa.Integer(), nullable=True),
        sa.Column("source_hash", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["source_hash"],
            ["sources.hash"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("author", "problem", "label", "sample", "source_hash"),
    )
    op.create_index("ix_submissions_source_hash", "submissions", ["source_hash"], unique=False)
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Integer(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=True),
        sa.Column("sample", sa.Integer(), nullable=True),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("variant", sa.String(), nullable=True),
        sa.Column("quick", sa.Boolean(), nullable=False),
        sa.Column("sandbox", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("forward_status", sa.String(), nullable=True),
        sa.Column("backward_status", sa.String(), nullable=True),
        sa.Column("total_speedup", sa.Float(), nullable=True),
        sa.Column("total_ci_low", sa.Float(), nullable=True),
        sa.Column("forward_speedup", sa.Float(), nullable=True),
        sa.Column("forward_ci_low", sa.Float(), nullable=True),
        sa.Column("source_hash", sa.String(), nullable=False),
        sa.Column("problem_hash", sa.String(), nullable=False),
        sa.Column("environment_hash", sa.String(), nullable=False),
        sa.Column("settings_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.Column("document", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["environment_hash"],
            ["environments.hash"],
        ),
        sa.ForeignKeyConstraint(
            ["problem_hash"],
            ["problems.hash"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["source_hash"],
            ["sources.hash"],
        ),
        sa.ForeignKeyConstraint(
            ["submission_id"],
            ["submissions.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_verdicts_author", "verdicts", ["author", "label", "problem"], unique=False)
    op.create_index("ix_verdicts_board", "verdicts", ["problem", "device", "status"], unique=False)
    op.create_index(
        "ix_verdicts_reuse",
        "verdicts",
        ["source_hash", "problem_hash", "environment_hash", "settings_hash"],
        unique=False,
    )
    op.create_index("ix_verdicts_submission_id", "verdicts", ["submission_id"], unique=False)
