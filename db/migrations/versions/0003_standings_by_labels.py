"""Standings by labels, and an index that finds each problem's newest source."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_index("ix_standings_newest", "standings", ["problem", "newest_id", "problem_hash"], unique=False)
    op.create_table(
        "standings_by_labels",
        sa.Column("standing_id", sa.Integer(), nullable=False),
        sa.Column("labels", sa.String(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("right_total", sa.Integer(), nullable=False),
        sa.Column("right_forward", sa.Integer(), nullable=False),
        sa.Column("total_id", sa.Integer(), nullable=True),
        sa.Column("total_place", sa.Integer(), nullable=True),
        sa.Column("forward_id", sa.Integer(), nullable=True),
        sa.Column("forward_place", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["standing_id"], ["standings.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("standing_id", "labels"),
        sqlite_with_rowid=False,
    )
    # Written out, as the code that keeps standings up may change after this.
    op.execute(
        """
        insert into standings_by_labels (standing_id, labels, samples, right_total, right_forward, total_id,
            total_place, forward_id, forward_place)
        with said as (
            select v.id, s.id as standing_id, v.labels, v.total_speedup, v.total_ci_low, v.total_bound_speedup,
                v.forward_speedup, v.forward_ci_low, v.forward_bound_speedup,
                v.status = 'correct' as right_total,
                coalesce(v.forward_status = 'passed', false)
                    and v.status in ('correct', 'missing_backward', 'wrong_backward') as right_forward,
                row_number() over (partition by s.id, v.sample, v.source_hash order by v.id desc) as nth
            from verdicts v indexed by ix_verdicts_figures
                join environments e on e.hash = v.environment_hash
                join standings s on s.problem = v.problem and s.problem_hash = v.problem_hash
                    and s.device_name = e.device_name and s.author = v.author and s.label is v.label
                    and s.strict_fp32 = v.strict_fp32
            where v.variant is null and v.status not in ('grader_error', 'not_run')
        ),
        placed as (
            select *,
                row_number() over (
                    partition by standing_id
                    order by right_total desc, coalesce(total_speedup <= 1.1 * total_bound_speedup, true) desc,
                        total_ci_low desc nulls last, id
                ) as total_place,
                row_number() over (
                    partition by standing_id
                    order by right_forward desc, coalesce(forward_speedup <= 1.1 * forward_bound_speedup, true) desc,
                        forward_ci_low desc nulls last, id
                ) as forward_place
            from said where nth = 1
        ),
        parted as (
            select *, min(total_place) over part as total_first, min(forward_place) over part as forward_first
            from placed window part as (partition by standing_id, labels)
        )
        select standing_id, labels, count(*), sum(right_total), sum(right_forward),
            max(case when total_place = total_first and right_total then id end),
            min(case when right_total then total_place end),
            max(case when forward_place = forward_first and right_forward then id end),
            min(case when right_forward then forward_place end)
        from parted group by standing_id, labels
        """
    )
