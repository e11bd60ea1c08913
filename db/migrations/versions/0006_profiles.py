"""Profiles of sources, beside the verdicts on them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_KEY = ("source_hash", "problem_hash", "device_name", "precision")


def upgrade() -> None:
    op.create_table(
        "profiles",
        sa.Column("id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in (*_KEY, "created_at", "document")),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_profiles_of", "profiles", list(_KEY), unique=False)
