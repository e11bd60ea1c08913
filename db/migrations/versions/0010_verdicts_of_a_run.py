"""An index of a run's verdicts: the live page counts them twice a second."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_index("ix_verdicts_run", "verdicts", ["run_id", "status", "created_at"], unique=False)
