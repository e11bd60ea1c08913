"""Leaderboards over stored verdicts.

- Entries rank by the lower end of the speedup's 95% interval. Submissions whose interval overlaps the leader's lower
  bound share its rank.
- `db.standings` says which of an author's verdicts counts. `db.labels` selects among these: a source whose newest
  verdict has other labels is not ranked by an older verdict. Copies of the reference are left out by default.
- Only verdicts on the problem's newest source count. Each device name has its own board, because speedups on different
  devices do not compare.
- Against torch.compile, an author's source with the best speedup over eager PyTorch is the one that ranks.
- A speedup more than 10% above the roofline bound is not ranked.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from pydantic import TypeAdapter
from sqlalchemy import text

from db.against import Speedup, read_over_compile
from db.bound import is_beyond
from db.labels import SOLUTIONS, LabelChoice
from db.metrics import shared_ranks
from db.store import Store
from db.summaries import Entry, Summary, attempts, summaries
from grader.verdict.models import NO_DEVICE, Device
from grader.verdict.value import Value

Board = Literal["total", "forward", "strict-fp32", "cpu"]
"""`total`: forward and backward together, correct verdicts only. `forward`: every verdict with a correct forward.
`strict-fp32`: like total, for gradings that timed with TensorFloat-32 off. `cpu`: like total, on CPUs only."""

Against = Literal["eager", "compile"]
"""What a speedup is over: eager PyTorch, or the faster of torch.compile's modes, which `--baselines` times."""

_MOST_COMPARED = 1000
"""Entries whose documents are read for the column over torch.compile; a larger board is ranked without it."""


class Leaderboard(Value):
    """A board with its summary by author."""

    board: Board
    against: Against = "eager"
    labels: LabelChoice = SOLUTIONS
    left_out: int = 0
    """Number of submissions that would be on the board but for a label in `labels.without`."""
    entries: tuple[Entry, ...]
    summaries: tuple[Summary, ...]
    """By author, best first on each device."""


def leaderboard(
    store: Store,
    *,
    board: Board = "total",
    problem: str | None = None,
    device: Device | None = None,
    labels: LabelChoice = SOLUTIONS,
    pass_at: Sequence[int] = (),
    against: Against = "eager",
) -> Leaderboard:
    """The board, by problem and device, best first. `pass_at` are the k of pass@k.

    With `against="compile"`, speedups, ranks and means are over torch.compile; what has no such time is not ranked.
    """
    figure = _figure(board)
    standings, values = _standings(board, problem, device, labels)
    query = f"""
        select s.author, s.device_name, s.problem, s.samples, s.right_{figure}, s.device, s.label, v.id as verdict_id,
            v.sample, v.status, v.quick, v.sandbox, v.created_at, v.labels,
            v.{figure}_speedup as speedup, v.{figure}_ci_low as ci_low, v.{figure}_ci_high as ci_high,
            v.{figure}_speedup / v.{figure}_bound_speedup as share_of_bound
        from {standings} left join verdicts v indexed by ix_verdicts_figures on v.id = s.{figure}_id
    """
    with store.reading() as session, _no_collection():
        found = session.execute(text(query), values)
        names, rows = [*found.keys()], found.all()
        del names[3:5]  # the counts, which `attempts` takes and no entry has
        placed = [dict(zip(names, (*row[:3], *row[5:]), strict=True)) for row in rows if row.verdict_id is not None]
        if against == "compile" or len(placed) <= _MOST_COMPARED:
            over = read_over_compile(session, [fields["verdict_id"] for fields in placed], figure)
            for fields in placed:
                _compare(fields, over.get(fields["verdict_id"]), ranks=against == "compile")
        entries = _ranked(placed)
        tried = attempts(rows)
        left_out = session.execute(text(_left_out(figure, labels)), values).scalar_one() if labels.without else 0

    return Leaderboard(
        board=board,
        against=against,
        labels=labels,
        left_out=left_out,
        entries=tuple(entries),
        summaries=tuple(summaries(entries, tried, pass_at)),
    )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection, which takes a third of the time of a board with thousands of rows."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _standings(
    board: Board, problem: str | None, device: Device | None, labels: LabelChoice
) -> tuple[str, dict[str, object]]:
    """SQL for the standings `s` of a board, and the parameters of all SQL here."""
    values: dict[str, object] = {"strict": board == "strict-fp32", "problem": problem, "precision": labels.precision}
    values["no_device"] = NO_DEVICE
    values["device"] = "cpu" if board == "cpu" else device
    for name, chosen in (("having", labels.having), ("without", labels.without)):
        values |= {f"{name}_{number}": json.dumps(label) for number, label in enumerate(chosen)}
    labelled = [*_each("having", labels), *(f"not {one}" for one in _each("without", labels))]
    source = _taken(_figure(board), " and ".join(labelled)) if labelled else "standings"
    return f"(select * from {source} where {_ON_BOARD}) s", values


def _each(name: Literal["having", "without"], labels: LabelChoice) -> list[str]:
    """SQL conditions: one for each label, that a part of a standing has it."""
    return [f"(instr(labels, :{name}_{number}) > 0)" for number in range(len(getattr(labels, name)))]


def _left_out(figure: str, labels: LabelChoice) -> str:
    """SQL for the number of submissions that only `labels.without` keeps from the board."""
    taken = " and ".join([*_each("having", labels), f"({' or '.join(_each('without', labels))})"])
    return f"""
        select coalesce(sum(part.right_{figure}), 0)
        from standings join (
            select standing_id, right_{figure} from standings_by_labels where {taken}
        ) as part on part.standing_id = standings.id
        where {_ON_BOARD}
    """


def _taken(figure: str, condition: str) -> str:
    """SQL for standings restricted by labels: sums, and the best id, taken from the row of the `min`."""
    return f"""(
        select problem, problem_hash, device, device_name, author, label, strict_fp32,
            precision, part.*
        from standings join (
            select standing_id, sum(samples) as samples, sum(right_{figure}) as right_{figure}, {figure}_id,
                min({figure}_place)
            from standings_by_labels where {condition} group by standing_id
        ) as part on part.standing_id = standings.id
    )"""


_ON_BOARD = """
    device_name != :no_device and strict_fp32 = :strict and precision = :precision
        and (:problem is null or problem = :problem) and (:device is null or device = :device)
        and problem_hash in (
            select problem_hash from standings join (
                select problem as name, max(newest_id) as newest from standings group by problem
            ) on problem = name and newest_id = newest
        )
"""
"""SQL condition on standings: those of the board, on the problems' newest sources."""


def _figure(board: Board) -> Literal["total", "forward"]:
    return "forward" if board == "forward" else "total"


def _compare(fields: dict[str, Any], over: Speedup | None, *, ranks: bool) -> None:
    """Add the speedup over torch.compile, and with `ranks` put it in the place of the one over eager PyTorch."""
    fields["vs_compile"] = over.value if over else None
    if ranks:
        value, low, high = (over.value, over.low, over.high) if over else (None, None, None)
        fields |= {"speedup": value, "ci_low": low, "ci_high": high}


def _interval(fields: dict[str, Any]) -> tuple[float, float] | None:
    """The speedup's interval; None if there is no time, or it is beyond the roofline bound."""
    speedup, low, high = fields["speedup"], fields["ci_low"], fields["ci_high"]
    if speedup is None or low is None or is_beyond(fields["share_of_bound"]):
        return None
    interval = low, low if high is None else high
    return interval if all(math.isfinite(figure) and figure > 0 for figure in (speedup, *interval)) else None


def _ranked(placed: Iterable[dict[str, Any]]) -> list[Entry]:
    """Entries of these fields with their ranks, in the order of the board."""
    group = itemgetter("problem", "device", "device_name")
    with_intervals = [(fields, _interval(fields)) for fields in placed]
    with_intervals.sort(key=lambda one: (group(one[0]), not one[1], -(one[0]["ci_low"] or 0.0), one[0]["verdict_id"]))
    entries = []
    for _, same in groupby(with_intervals, key=lambda one: group(one[0])):
        together, intervals = zip(*same, strict=True)
        for fields, (rank, tied) in zip(together, shared_ranks(intervals), strict=True):
            fields |= {"labels": _labels(fields["labels"]), "rank": rank, "tied": tied}
            entries.append(fields)
    return _ENTRIES.validate_python(entries)


_ENTRIES = TypeAdapter(list[Entry])
"""Validating all at once takes a third less time than one by one."""


@lru_cache(maxsize=1024)
def _labels(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
