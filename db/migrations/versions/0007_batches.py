"""Batches that a server has taken, and what graders say and are asked while they run."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("graders", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("graders", sa.Column("status", sa.String(), nullable=True))
    op.create_table(
        "cancels",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("author", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["graders.run_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner", "idempotency_key"),
    )
    op.create_table(
        "batch_lines",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=True),
        sa.Column("ended", sa.Integer(), nullable=True),
        sa.Column("verdict_id", sa.Integer(), nullable=True),
        sa.Column("message", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_batch_lines_ended", "batch_lines", ["batch_id", "ended"], unique=False)
    op.create_index("ix_batch_lines_waiting", "batch_lines", ["ended", "author"], unique=False)
