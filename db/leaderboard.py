"""Who is fastest: boards over stored verdicts.

- Ranked by the lower end of the speedup's 95% interval. Whose interval reaches the lower end of the first of a rank
  shares it: nobody could tell them apart.
- Which of an author's verdicts counts: see `db.standings`. Labels are taken in or out of what counts: a text whose
  newest verdict has other labels is not ranked by an older one.
- Verdicts on the problem's newest text only; each device by its name is a board of its own, because speedups on
  different devices do not compare.
- More than 10% above the speed of light is not ranked.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from statistics import geometric_mean
from typing import Any, Literal

from pydantic import Field, TypeAdapter
from sqlalchemy import text

from db import metrics
from db.standings import BEYOND_LIGHT
from db.store import Store
from grader.verdict.models import Device, Status, Value

Board = Literal["total", "forward", "strict-fp32", "cpu"]
"""`total`: forward and backward together, correct verdicts only. `forward`: whatever has a right forward.
`strict-fp32`: as total, of gradings that timed with TensorFloat-32 off. `cpu`: as total, on CPUs only."""


_Draws = dict[tuple[str, str], Counter[tuple[int, int]]]
"""By author and device, how many problems have so many samples, of which so many are right."""


class Entry(Value):
    """One line of a board."""

    rank: int | None
    """Within problem and device; absent without a finite time, and above 110% of the speed of light."""
    tied: bool = False
    """Others have the same rank."""
    problem: str
    device: Device
    device_name: str
    author: str
    label: str | None
    sample: int | None
    status: Status
    speedup: float | None
    ci_low: float | None
    """This ranks."""
    ci_high: float | None = None
    share_of_light: float | None = None
    """The speed of light's time over the candidate's, 1 at the speed of light; absent where that is not known."""
    labels: tuple[str, ...] = ()
    """`Verdict.labels`."""
    quick: bool
    sandbox: str
    verdict_id: int
    created_at: str

    @property
    def floored_speedup(self) -> float | None:
        """The speedup, at most that of the speed of light: one impossible time must not carry a mean."""
        if self.speedup is None or self.share_of_light is None:
            return self.speedup
        return self.speedup / max(1.0, self.share_of_light)


class Summary(Value):
    """One author's best on each problem of a board, taken together, on one device."""

    author: str
    device_name: str
    problems: int
    """How many have a rank; the means are over these."""
    tried: int = 0
    """How many were graded; fast_p is over these."""
    geometric_mean_speedup: float | None
    """Of speedups floored at the speed of light's time."""
    geometric_mean_ci_low: float | None
    fast_p: dict[str, float] = Field(default_factory=dict)
    """By p, as text: the share of the tried problems that are right and more than p times as fast as the reference."""
    pass_at_k: dict[str, float | None] = Field(default_factory=dict)
    """By k, as text: mean over the problems with at least k samples; None where there is none."""


class Leaderboard(Value):
    """A board with its summary."""

    board: Board
    entries: tuple[Entry, ...]
    summaries: tuple[Summary, ...]


def leaderboard(
    store: Store,
    *,
    board: Board = "total",
    problem: str | None = None,
    device: Device | None = None,
    with_labels: Sequence[str] = (),
    without_labels: Sequence[str] = (),
    pass_at: Sequence[int] = (),
) -> Leaderboard:
    """The board, by problem and device, best first.

    Of the verdicts that count, those are taken that have each of `with_labels` and none of `without_labels`. `pass_at`
    are the k of pass@k.
    """
    figure = _figure(board)
    standings, values = _standings(board, problem, device, with_labels, without_labels)
    query = f"""
        select s.author, s.device_name, s.problem, s.samples, s.right_{figure}, v.id as verdict_id, s.device, s.label,
            v.sample, v.status, v.quick, v.sandbox, v.created_at, v.labels, v.{figure}_speedup, v.{figure}_ci_low,
            v.{figure}_ci_high, v.{figure}_speedup / v.{figure}_bound_speedup as share_of_light
        from {standings} left join verdicts v indexed by ix_verdicts_figures on v.id = s.{figure}_id
    """
    with store.reading() as session, _no_collection():
        rows = session.execute(text(query), values).all()
        entries = _ranked([_Placed(row) for row in rows if row.verdict_id is not None])
        draws = _draws(rows)
    summaries = _summaries(entries, draws, pass_at)
    return Leaderboard(board=board, entries=tuple(entries), summaries=tuple(summaries))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Thousands of rows make the interpreter look for garbage dozens of times: a quarter of the board's time.

    Nor does it look through them at the end: freezing and unfreezing counts them among the old.
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
    board: Board,
    problem: str | None,
    device: Device | None,
    with_labels: Sequence[str],
    without_labels: Sequence[str],
) -> tuple[str, dict[str, object]]:
    """SQL for the standings `s` of a board, on the problems' newest texts, and the values that it names."""
    values: dict[str, object] = {"strict": board == "strict-fp32", "problem": problem}
    values["device"] = "cpu" if board == "cpu" else device
    labelled: list[str] = []
    for found, names in ((">", with_labels), ("=", without_labels)):
        for name in names:
            key = f"label_{len(labelled)}"
            values[key] = json.dumps(name)
            labelled.append(f"instr(labels, :{key}) {found} 0")
    source = _taken(_figure(board), " and ".join(labelled)) if labelled else "standings"
    chosen = f"""(
        select * from {source} where strict_fp32 = :strict and (:problem is null or problem = :problem)
            and (:device is null or device = :device) and problem_hash in ({_NEWEST_TEXTS})
    ) s"""
    return chosen, values


def _taken(figure: str, condition: str) -> str:
    """SQL for standings of what has the right labels: sums, and the best, which stands beside the least place."""
    return f"""(
        select problem, problem_hash, device, device_name, author, label, strict_fp32, part.*
        from standings join (
            select standing_id, sum(samples) as samples, sum(right_{figure}) as right_{figure}, {figure}_id,
                min({figure}_place)
            from standings_by_labels where {condition} group by standing_id
        ) as part on part.standing_id = standings.id
    )"""


_NEWEST_TEXTS = """
    select problem_hash from standings join (
        select problem as name, max(newest_id) as newest from standings group by problem
    ) on problem = name and newest_id = newest
"""


def _figure(board: Board) -> Literal["total", "forward"]:
    return "forward" if board == "forward" else "total"


class _Placed:
    """What ranks a row, and the fields of its Entry."""

    __slots__ = ("fields", "group", "interval", "order")

    def __init__(self, row: Sequence[Any]) -> None:
        (
            author, device_name, problem, _, _, verdict_id, device, label, sample, status, quick, sandbox, created_at,
            labels, speedup, ci_low, ci_high, share_of_light,
        ) = row  # fmt: skip
        self.interval = _believed(speedup, ci_low, ci_high, share_of_light)
        """None where there is no time, or none that anybody believes."""
        self.group = (problem, device, device_name)
        self.order = (*self.group, self.interval is None, -(ci_low or 0.0), verdict_id)
        # Written out: of all ways to make thousands of these this is the quickest.
        self.fields = {
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
            "share_of_light": share_of_light,
            "labels": _labels(labels),
            "quick": quick,
            "sandbox": sandbox,
            "verdict_id": verdict_id,
            "created_at": created_at,
        }


def _believed(
    speedup: float | None, ci_low: float | None, ci_high: float | None, share_of_light: float | None
) -> tuple[float, float] | None:
    if speedup is None or ci_low is None or (share_of_light is not None and share_of_light > BEYOND_LIGHT):
        return None
    interval = ci_low, ci_low if ci_high is None else ci_high
    return interval if math.isfinite(speedup) and math.isfinite(interval[0]) and math.isfinite(interval[1]) else None


def _ranked(rows: Sequence[_Placed]) -> list[Entry]:
    """Entries in the order of the board."""
    ranked = []
    for _, group in groupby(sorted(rows, key=attrgetter("order")), key=attrgetter("group")):
        placed = list(group)
        ranks = shared_ranks([one.interval for one in placed])
        shared = Counter(ranks)
        for one, rank in zip(placed, ranks, strict=True):
            if rank is not None:
                one.fields["rank"], one.fields["tied"] = rank, shared[rank] > 1
            ranked.append(one.fields)
    return _ENTRIES.validate_python(ranked)


_ENTRIES = TypeAdapter(list[Entry])
"""At once they are validated a third faster than one by one."""


@lru_cache(maxsize=1024)
def _labels(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def shared_ranks(intervals: Sequence[tuple[float, float] | None]) -> list[int | None]:
    """Ranks of intervals that come sorted by their lower ends, highest first; None for those that are None.

    An interval that reaches the lower end of the first of the rank before it shares that rank.
    """
    ranks: list[int | None] = []
    head, rank = None, 0
    for position, interval in enumerate(intervals, start=1):
        if interval is None:
            ranks.append(None)
            continue
        if head is None or interval[1] < head:
            head, rank = interval[0], position
        ranks.append(rank)
    return ranks


def _draws(standings: Iterable[Sequence[Any]]) -> _Draws:
    """From rows that begin with author, device, problem, samples, and how many of these are right."""
    drawn: dict[tuple[str, str], dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in standings:
        author, device_name, problem, samples, right = row[:5]
        problems = drawn[author, device_name]
        others, right_others = problems.get(problem, (0, 0))
        problems[problem] = samples + others, right + right_others
    return {key: Counter(problems.values()) for key, problems in drawn.items()}


def _pass_at(k: int, problems: Mapping[tuple[int, int], int]) -> float | None:
    """Mean pass@k over the problems with at least k samples, counted by samples and right ones; None without any."""
    enough = {counts: count for counts, count in problems.items() if counts[0] >= k}
    passed = sum(count * metrics.pass_at_k(samples, right, k) for (samples, right), count in enough.items())
    return passed / sum(enough.values()) if enough else None


def _summaries(entries: Iterable[Entry], draws: _Draws, pass_at: Sequence[int]) -> list[Summary]:
    """By author and device, of each that has `draws`."""
    best: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for entry in entries:
        best[entry.author, entry.device_name].setdefault(entry.problem, entry)
    summaries = [
        _summary(*key, best[key], problems.total(), {str(k): _pass_at(k, problems) for k in pass_at})
        for key, problems in draws.items()
    ]
    return sorted(
        summaries, key=lambda one: (one.device_name, -one.problems, -(one.geometric_mean_ci_low or 0.0), one.author)
    )


def _summary(
    author: str, device_name: str, best: Mapping[str, Entry], tried: int, chances: dict[str, float | None]
) -> Summary:
    ranked = [entry for entry in best.values() if entry.rank is not None]
    floored = [entry.floored_speedup if entry.rank is not None else None for entry in best.values()]
    speedups = [speedup for speedup in floored if speedup]
    return Summary(
        author=author,
        device_name=device_name,
        problems=len(ranked),
        tried=tried,
        geometric_mean_speedup=geometric_mean(speedups) if speedups else None,
        geometric_mean_ci_low=geometric_mean(e.ci_low for e in ranked if e.ci_low) if ranked else None,
        fast_p={f"{p:g}": metrics.fast_p(floored, p, tried) for p in metrics.FAST_P},
        pass_at_k=chances,
    )
