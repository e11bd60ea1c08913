"""Columns that boards rank and filter by (labels, strict float32, intervals, bounds), and standings."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_FIGURES = ("total_ci_high", "total_bound_speedup", "forward_ci_high", "forward_bound_speedup")
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
)


def upgrade() -> None:
    op.add_column("verdicts", sa.Column("strict_fp32", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("verdicts", sa.Column("labels", sa.String(), nullable=False, server_default="[]"))
    for name in _FIGURES:
        op.add_column("verdicts", sa.Column(name, sa.Float(), nullable=True))
    op.execute(
        """
        update verdicts set
            labels = coalesce(json_extract(document, '$.labels'), '[]'),
            total_ci_high = json_extract(document, '$.timing.total.ci_high'),
            forward_ci_high = json_extract(document, '$.timing.forward.ci_high')
        """
    )
    op.create_index("ix_verdicts_figures", "verdicts", list(_INDEXED), unique=False)
    op.create_table(
        "standings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("problem_hash", sa.String(), nullable=False),
        sa.Column("device_name", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=True),
        sa.Column("strict_fp32", sa.Boolean(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("right_total", sa.Integer(), nullable=False),
        sa.Column("right_forward", sa.Integer(), nullable=False),
        sa.Column("total_id", sa.Integer(), nullable=True),
        sa.Column("forward_id", sa.Integer(), nullable=True),
        sa.Column("newest_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["problem_hash"], ["problems.hash"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_standings_author", "standings", ["author", "label", "problem"], unique=False)
    # Written out, as the code that keeps standings up may change after this.
    op.execute(
        """
        insert into standings (problem, problem_hash, device_name, author, label, strict_fp32, device, samples,
            right_total, right_forward, total_id, forward_id, newest_id)
        with said as (
            select v.id, v.problem, v.problem_hash, v.device, e.device_name, v.author, v.label, v.strict_fp32,
                v.total_ci_low, v.forward_ci_low,
                v.status = 'correct' as right_total,
                coalesce(v.forward_status = 'passed', false)
                    and v.status in ('correct', 'missing_backward', 'wrong_backward') as right_forward,
                row_number() over (
                    partition by v.problem, v.problem_hash, e.device_name, v.author, v.label, v.sample, v.source_hash
                    order by v.id desc
                ) as nth
            from verdicts v join environments e on e.hash = v.environment_hash
            where v.variant is null and v.status not in ('grader_error', 'not_run')
        ),
        placed as (
            select *,
                row_number() over (
                    partition by problem, problem_hash, device_name, author, label
                    order by right_total desc, total_ci_low desc nulls last, id
                ) as total_place,
                row_number() over (
                    partition by problem, problem_hash, device_name, author, label
                    order by right_forward desc, forward_ci_low desc nulls last, id
                ) as forward_place
            from said where nth = 1
        )
        select problem, problem_hash, device_name, author, label, strict_fp32, device, count(*), sum(right_total),
            sum(right_forward), max(case when total_place = 1 and right_total then id end),
            max(case when forward_place = 1 and right_forward then id end), max(id)
        from placed group by problem, problem_hash, device_name, author, label
        """
    )
