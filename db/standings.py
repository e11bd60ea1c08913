"""Standings: for each author, label, problem text and device, the verdicts that count, kept up with every verdict.

A board reads thousands of standings where it would have to sift hundreds of thousands of verdicts. What counts:

- of verdicts on one text, the newest: grading again until luck strikes gains nothing, and a later failure counts;
- of an author's texts under one label, the best by the lower end of the speedup's interval, those that nobody can
  believe last;
- not what says nothing about a text: the grader's own failures, `not_run`, and a look at one variant.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text

BEYOND_LIGHT = 1.10
"""Times the speedup at the speed of light: faster than this is not ranked. No error of the bound explains it."""

_KEY = "problem, problem_hash, device_name, author, label, strict_fp32"


def selection(condition: str = "", *, sift: bool = False) -> str:
    """SQL that gives standings; `condition` narrows the verdicts `v` down, with an environment `e` beside each.

    `sift`: every verdict is looked at, so that an index without their documents is the shorter way.
    """
    by_figures = "indexed by ix_verdicts_figures" if sift else ""
    return f"""
        with said as (
            select v.id, v.problem, v.problem_hash, v.device, e.device_name, v.author, v.label, v.strict_fp32,
                v.total_speedup, v.total_ci_low, v.total_bound_speedup,
                v.forward_speedup, v.forward_ci_low, v.forward_bound_speedup,
                v.status = 'correct' as right_total,
                v.forward_status = 'passed' and v.status in ('correct', 'missing_backward', 'wrong_backward')
                    as right_forward,
                row_number() over (
                    partition by v.problem, v.problem_hash, e.device_name, v.author, v.label, v.strict_fp32,
                        v.sample, v.source_hash
                    order by v.id desc
                ) as nth
            from verdicts v {by_figures} join environments e on e.hash = v.environment_hash
            where v.variant is null and v.status not in ('grader_error', 'not_run') {condition}
        ),
        placed as (
            select *, {_place("total")}, {_place("forward")} from said where nth = 1
        )
        select {_KEY}, device,
            count(*) as samples,
            sum(right_total) as right_total,
            sum(coalesce(right_forward, 0)) as right_forward,
            max(case when total_place = 1 and right_total then id end) as total_id,
            max(case when forward_place = 1 and right_forward then id end) as forward_id,
            max(id) as newest_id
        from placed group by {_KEY}
    """


def _place(board: str) -> str:
    believed = f"coalesce({board}_speedup <= {BEYOND_LIGHT} * {board}_bound_speedup, true)"
    return f"""
        row_number() over (
            partition by {_KEY}
            order by coalesce(right_{board}, 0) desc, {believed} desc, {board}_ci_low desc nulls last, id
        ) as {board}_place
    """


_COLUMNS = f"{_KEY}, device, samples, right_total, right_forward, total_id, forward_id, newest_id"


def update(connection: Connection, key: Mapping[str, object]) -> None:
    """Bring one standing up to date. `key` has a value for each of its columns."""
    same = " and ".join(f"{name} is :{name}" for name in _KEY.split(", "))
    connection.execute(text(f"delete from standings where {same}"), key)
    of_key = " and ".join(f"{'e' if name == 'device_name' else 'v'}.{name} is :{name}" for name in _KEY.split(", "))
    connection.execute(text(f"insert into standings ({_COLUMNS}) {selection(f'and {of_key}')}"), key)


def rebuild(connection: Connection) -> None:
    """Make all standings anew."""
    connection.execute(text("delete from standings"))
    connection.execute(text(f"insert into standings ({_COLUMNS}) {selection(sift=True)}"))
