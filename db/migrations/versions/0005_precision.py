"""The precision of a grading, which has boards of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_INDEXED = (
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
    "precision",
)


def upgrade() -> None:
    for table in ("verdicts", "standings"):
        op.add_column(table, sa.Column("precision", sa.String(), nullable=False, server_default="fp32"))
    op.drop_index("ix_verdicts_figures", "verdicts")
    op.create_index("ix_verdicts_figures", "verdicts", list(_INDEXED), unique=False)
