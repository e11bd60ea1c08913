"""Differences between two databases or runs: results of submissions, and ranks of authors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from db.against import Speedup
from db.labels import SOLUTIONS
from db.rows import Row, counted
from db.summaries import Summary, ranked, summary
from grader.verdict.models import Status
from grader.verdict.value import Value

Kind = Literal["added", "removed", "fixed", "broken", "changed", "faster", "slower", "moved"]
KINDS: dict[Kind, str] = {
    "broken": "correct before, not now",
    "fixed": "correct now, not before",
    "changed": "another status",
    "slower": "the 95% interval of the speedup lies below the one before",
    "faster": "the 95% interval of the speedup lies above the one before",
    "removed": "without a verdict now",
    "added": "without a verdict before",
    "moved": "an author whose rank changed",
}
"""Each kind with its meaning, in the order in which they are listed."""

Key = tuple[str, str, str, str, bool]
"""Device name, problem, author with label and sample of a submission, precision, whether TensorFloat-32 was off."""


class Change(Value):
    """One submission with another result, or one author with another rank."""

    kind: Kind
    problem: str
    """Empty for an author."""
    submission: str
    """Author with label and sample, or an author alone."""
    device_name: str
    before: str
    after: str
    """Status and speedup, or rank and mean speedup; empty if absent."""
    source_changed: bool = False
    """Whether the submission's source is another one."""


class Comparison(Value):
    """All changes, and the number of submissions with the same result in both."""

    changes: tuple[Change, ...]
    same: int


def compare(before: Iterable[Row], after: Iterable[Row]) -> Comparison:
    """The changes from the verdicts `before` to those `after`.

    Of each side count what boards count; of several sources under one label, the newest. Authors rank as on the total
    board, over the problems of their side: a problem without a correct submission counts as 1.0.
    """
    old, new = _newest(before), _newest(after)
    changes = [change for key in sorted(old.keys() | new.keys()) if (change := _change(old.get(key), new.get(key)))]
    same = len(old.keys() | new.keys()) - len(changes)
    order = list(KINDS)
    changes.sort(key=lambda change: order.index(change.kind))
    return Comparison(changes=(*changes, *_moves(old.values(), new.values())), same=same)


def _newest(rows: Iterable[Row]) -> dict[Key, Row]:
    """The newest verdict that counts on each submission."""
    return {(row.device_name, row.problem, row.name, row.precision, row.strict_fp32): row for row in counted(rows)}


def _change(old: Row | None, new: Row | None) -> Change | None:
    kind = _kind(old, new)
    known = new or old
    if kind is None or known is None:
        return None
    return Change(
        kind=kind,
        problem=known.problem,
        submission=known.name,
        device_name=known.device_name,
        before=_result(old),
        after=_result(new),
        source_changed=old is not None and new is not None and old.source_hash != new.source_hash,
    )


def _kind(old: Row | None, new: Row | None) -> Kind | None:
    if old is None or new is None:
        return "added" if old is None else "removed"
    if old.status is not new.status:
        return "fixed" if new.correct else "broken" if old.correct else "changed"
    if old.correct and old.total and new.total:
        return "slower" if new.total.high < old.total.low else "faster" if new.total.low > old.total.high else None
    return None


def _result(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row.status} {row.total.value:.3f}x" if row.correct and row.total else str(row.status)


def _moves(old: Iterable[Row], new: Iterable[Row]) -> Iterator[Change]:
    """The authors with another rank on a device that both sides have."""
    before, after = _places(old), _places(new)
    for device_name in sorted(before.keys() & after.keys()):
        ranks = before[device_name], after[device_name]
        for author in sorted(ranks[0].keys() | ranks[1].keys()):
            places = [side.get(author) for side in ranks]
            if len({place and place.rank for place in places}) > 1:
                yield Change(
                    kind="moved",
                    problem="",
                    submission=author,
                    device_name=device_name,
                    before=_place(places[0]),
                    after=_place(places[1]),
                )


def _place(one: Summary | None) -> str:
    return "" if one is None else f"{'=' if one.tied else ''}{one.rank or '-'} {one.geometric_mean_speedup:.3f}x"


def _is_ranked(row: Row) -> bool:
    """Whether the total board, as it is shown without options, takes the verdict."""
    usual = row.precision is SOLUTIONS.precision and not row.strict_fp32
    return usual and SOLUTIONS.takes(row.labels) and row.status is not Status.NOT_RUN


def _places(rows: Iterable[Row]) -> dict[str, dict[str, Summary]]:
    """Authors with their ranks over the device's problems, by device name and author."""
    problems: dict[str, set[str]] = defaultdict(set)
    best: dict[str, dict[str, dict[str, Speedup]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if _is_ranked(row):
            problems[row.device_name].add(row.problem)
            authors = best[row.device_name]
            speedup = row.believed("total") if row.correct else None
            known = authors[row.author].get(row.problem)
            if speedup and (known is None or speedup.low > known.low):
                authors[row.author][row.problem] = speedup
    found = {}
    for device_name, authors in best.items():
        problem_count = len(problems[device_name])
        group = [
            summary(
                author,
                device_name,
                [(one.value, one.low, one.high) for one in speedups.values()],
                problem_count,
                tried=problem_count,
            )
            for author, speedups in authors.items()
        ]
        found[device_name] = {one.author: one for one in ranked(group)}
    return found
