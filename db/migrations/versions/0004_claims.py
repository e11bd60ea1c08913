"""Claims of graders on what they grade, so that two graders with one database share their work."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "graders",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("process", sa.Integer(), nullable=False),
        sa.Column("process_started", sa.Integer(), nullable=False),
        sa.Column("seen_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"]),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "claims",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["graders.run_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_claims_run_id", "claims", ["run_id"], unique=False)
