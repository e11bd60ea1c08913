"""Standings: the verdicts that count for each author, label, problem source, device and precision.

They are updated with every verdict; a board reads thousands of them instead of hundreds of thousands of verdicts.
These verdicts count, also on pages and in comparisons (`db.rows.counted`):

- only the newest for a source, whatever its labels, so that regrading cannot improve a rank by luck;
- among an author's sources under one label, the best by the lower end of the speedup's interval; speedups beyond the
  roofline bound come last;
- no verdict that says nothing about a source: grader errors, `not_run`, gradings of one variant;
- only verdicts on the newest source of a problem on which one counts.

The same is kept for each exact set of labels, so that a board that filters by label adds up a few rows per standing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, insert, text

from db.bound import MAX_SHARE_OF_BOUND
from db.tables import LabelledStandingRow, StandingRow
from grader.verdict.models import SAYS_NOTHING

KEY = ("problem", "problem_hash", "device_name", "author", "label", "strict_fp32", "precision")
"""Columns that tell standings apart."""
SOURCE_KEY = (*KEY, "sample", "source_hash")
"""Columns of what has one verdict that counts."""

_KEY = ", ".join(KEY)


def _qualified(name: str) -> str:
    """A key's column in a query of verdicts `v` and their environments `e`."""
    return f"{'e' if name == 'device_name' else 'v'}.{name}"


def _parts(condition: str = "") -> str:
    """SQL for the verdicts that count, by key and labels, with the place of each part's best in the key.

    `condition` restricts the verdicts `v` and their environments `e`.
    """
    return f"""
        with usable as (
            select v.id, v.problem, v.problem_hash, v.device, e.device_name, v.author, v.label, v.strict_fp32,
                v.precision, v.labels, v.total_speedup, v.total_ci_low, v.total_bound_speedup,
                v.forward_speedup, v.forward_ci_low, v.forward_bound_speedup,
                v.status = 'correct' as right_total,
                coalesce(v.forward_status = 'passed', false)
                    and v.status in ('correct', 'missing_backward', 'wrong_backward') as right_forward,
                row_number() over (
                    partition by {", ".join(map(_qualified, SOURCE_KEY))} order by v.id desc
                ) as nth
            from verdicts v join environments e on e.hash = v.environment_hash
            where v.variant is null and v.status not in ({", ".join(f"'{status}'" for status in SAYS_NOTHING)})
                {condition}
        ),
        placed as (
            select *, {_place("total")}, {_place("forward")} from usable where nth = 1
        ),
        parted as (
            select *, min(total_place) over part as total_first, min(forward_place) over part as forward_first
            from placed window part as (partition by {_KEY}, labels)
        )
        select {_KEY}, device, labels, count(*) as samples, max(id) as newest_id,
            sum(right_total) as right_total,
            max(case when total_place = total_first and right_total then id end) as total_id,
            min(case when right_total then total_place end) as total_place,
            sum(right_forward) as right_forward,
            max(case when forward_place = forward_first and right_forward then id end) as forward_id,
            min(case when right_forward then forward_place end) as forward_place
        from parted group by {_KEY}, labels order by {_KEY}
    """


def _place(board: str) -> str:
    plausible = f"coalesce({board}_speedup <= {MAX_SHARE_OF_BOUND} * {board}_bound_speedup, true)"
    return f"""
        row_number() over (
            partition by {_KEY}
            order by right_{board} desc, {plausible} desc, {board}_ci_low desc nulls last, id
        ) as {board}_place
    """


def update(connection: Connection, key: Mapping[str, object]) -> None:
    """Recompute one standing; `key` has a value for each column of the key."""
    same = " and ".join(f"{name} is :{name}" for name in KEY)
    of_key = " and ".join(f"{_qualified(name)} is :{name}" for name in KEY)
    connection.execute(text(f"delete from standings where {same}"), key)
    _insert(connection, connection.execute(text(_parts(f"and {of_key}")), key))


def _insert(connection: Connection, found: Iterable[Row[Any]]) -> None:
    """Insert standings with their parts, from rows sorted by key. Deleting a standing deletes its parts."""
    for _, rows in groupby(found, key=lambda row: row[: len(KEY)]):
        parts = [dict(row._mapping) for row in rows]
        standing = {name: parts[0][name] for name in (*KEY, "device")}
        standing["newest_id"] = max(part["newest_id"] for part in parts)
        for name in ("samples", "right_total", "right_forward"):
            standing[name] = sum(part[name] for part in parts)
        for board in ("total", "forward"):
            best = (part[f"{board}_id"] for part in parts if part[f"{board}_place"] == 1)
            standing[f"{board}_id"] = next(best, None)
        standing_id = connection.execute(insert(StandingRow), standing).lastrowid
        connection.execute(insert(LabelledStandingRow), [part | {"standing_id": standing_id} for part in parts])
