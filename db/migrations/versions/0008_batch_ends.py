"""When a batch ended, by which it is forgotten."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("batches", sa.Column("ended_at", sa.String(), nullable=True))
    # Nothing says when the batches there ended; counted from now, none is forgotten too early.
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    op.get_bind().execute(sa.text("update batches set ended_at = :now"), {"now": now})
