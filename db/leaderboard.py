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
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
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
        select s.author, s.device_name, s.problem, s.samples, s.right_{figure}, v.id as verdict_id, s.device, s.label,
            v.sample, v.status, v.quick, v.sandbox, v.created_at, v.labels, v.{figure}_speedup, v.{figure}_ci_low,
            v.{figure}_ci_high, v.{figure}_speedup / v.{figure}_bound_speedup as share_of_bound
        from {standings} left join verdicts v indexed by ix_verdicts_figures on v.id = s.{figure}_id
    """
    with store.reading() as session, _no_collection():
        rows = session.execute(text(query), values).all()
        placed = [_Placed(row) for row in rows if row.verdict_id is not None]
        if against == "compile" or len(placed) <= _MOST_COMPARED:
            over = read_over_compile(session, [one.fields["verdict_id"] for one in placed], figure)
            for one in placed:
                one.compare(over.get(one.fields["verdict_id"]), ranks=against == "compile")
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
    """Disable garbage collection, which takes a quarter of the time of a board with thousands of rows.

    Freezing and unfreezing moves the rows to the oldest generation, so that they are not scanned afterwards either.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
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


class _Placed:
    """A row of the query: its sort key, and the fields of its Entry."""

    __slots__ = ("fields", "group", "interval", "order")

    def __init__(self, row: Sequence[Any]) -> None:
        (
            author, device_name, problem, _, _, verdict_id, device, label, sample, status, quick, sandbox, created_at,
            labels, speedup, ci_low, ci_high, share_of_bound,
        ) = row  # fmt: skip
        self.interval = _plausible(speedup, ci_low, ci_high, share_of_bound)
        """None if there is no time, or it is beyond the roofline bound."""
        self.group = (problem, device, device_name)
        self.order = (*self.group, self.interval is None, -(ci_low or 0.0), verdict_id)
        # A literal is the fastest way to make thousands of these.
        self.fields: dict[str, Any] = {
            "rank": None,
            "problem": problem,
            "device": device,
            "device_name": device_name,
            "author": author,
            "label": label,
            "sample": sample,
            "status": status,
            "speedup": speedup,
            "ci_low": ci_low,
            "ci_high": ci_high,
            "share_of_bound": share_of_bound,
            "labels": _labels(labels),
            "quick": quick,
            "sandbox": sandbox,
            "verdict_id": verdict_id,
            "created_at": created_at,
        }

    def compare(self, over: Speedup | None, *, ranks: bool) -> None:
        """Add the speedup over torch.compile, and with `ranks` put it in the place of the one over eager PyTorch."""
        self.fields["vs_compile"] = over.value if over else None
        if ranks:
            value, low, high = (over.value, over.low, over.high) if over else (None, None, None)
            self.fields |= {"speedup": value, "ci_low": low, "ci_high": high}
            self.interval = _plausible(value, low, high, self.fields["share_of_bound"])
            self.order = (*self.group, self.interval is None, -(low or 0.0), self.fields["verdict_id"])


def _plausible(
    speedup: float | None, ci_low: float | None, ci_high: float | None, share_of_bound: float | None
) -> tuple[float, float] | None:
    if speedup is None or ci_low is None or is_beyond(share_of_bound):
        return None
    interval = ci_low, ci_low if ci_high is None else ci_high
    return interval if all(math.isfinite(figure) and figure > 0 for figure in (speedup, *interval)) else None


def _ranked(rows: Sequence[_Placed]) -> list[Entry]:
    """Entries with their ranks, in the order of the board."""
    ranked = []
    for _, group in groupby(sorted(rows, key=attrgetter("order")), key=attrgetter("group")):
        placed = list(group)
        for one, (rank, tied) in zip(placed, shared_ranks([one.interval for one in placed]), strict=True):
            one.fields["rank"], one.fields["tied"] = rank, tied
            ranked.append(one.fields)
    return _ENTRIES.validate_python(ranked)


_ENTRIES = TypeAdapter(list[Entry])
"""Validating all at once takes a third less time than one by one."""


@lru_cache(maxsize=1024)
def _labels(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
