"""Who is fastest: queries over stored verdicts.

What counts on a board:
- of verdicts on one text, the newest: grading again until luck strikes gains nothing, and a later failure counts;
- of an author's texts under one label, the best by the lower end of the speedup's interval;
- verdicts on the problem's newest text only, and on all its variants (`--variant` is for looking, not for ranking);
- each device by its name is a board of its own, because speedups on different devices do not compare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from statistics import geometric_mean
from typing import Any, Literal

from sqlalchemy import Select, func, select
from sqlmodel import col

from db.store import Store
from db.tables import EnvironmentRow, VerdictRow
from grader.models import Device, StageStatus, Status, Value

Board = Literal["total", "forward"]
"""`total`: forward and backward together, correct verdicts only. `forward`: whatever has a right forward."""

_RIGHT_FORWARD = (Status.CORRECT, Status.MISSING_BACKWARD, Status.WRONG_BACKWARD)


class Entry(Value):
    """One line of a board."""

    rank: int | None
    """Within problem and device; absent without a timing."""
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
    quick: bool
    sandbox: str
    verdict_id: int
    created_at: str


class Summary(Value):
    """One author's best on each problem of a board, taken together, on one device."""

    author: str
    device_name: str
    problems: int
    """How many have a timing; the means are over these."""
    geometric_mean_speedup: float
    geometric_mean_ci_low: float


class Leaderboard(Value):
    """A board with its summary."""

    board: Board
    entries: tuple[Entry, ...]
    summaries: tuple[Summary, ...]


def leaderboard(
    store: Store, *, board: Board = "total", problem: str | None = None, device: Device | None = None
) -> Leaderboard:
    """The board, by problem and device, best first."""
    entries = _ranked(_best_of_each(_newest_of_each_text(store, board, problem, device)))
    return Leaderboard(board=board, entries=tuple(entries), summaries=tuple(_summaries(entries)))


def _newest_of_each_text(store: Store, board: Board, problem: str | None, device: Device | None) -> list[Entry]:
    on_total = board == "total"
    columns: list[Any] = [
        col(VerdictRow.id).label("verdict_id"),
        col(VerdictRow.problem),
        col(VerdictRow.device),
        col(EnvironmentRow.device_name),
        col(VerdictRow.author),
        col(VerdictRow.label),
        col(VerdictRow.sample),
        col(VerdictRow.status),
        col(VerdictRow.total_speedup if on_total else VerdictRow.forward_speedup).label("speedup"),
        col(VerdictRow.total_ci_low if on_total else VerdictRow.forward_ci_low).label("ci_low"),
        col(VerdictRow.quick),
        col(VerdictRow.sandbox),
        col(VerdictRow.created_at),
    ]
    query: Select[Any] = (
        select(*columns)
        .join(EnvironmentRow)
        .where(col(VerdictRow.id).in_(_newest_ids()))
        .where(col(VerdictRow.problem_hash).in_(_newest_problem_hashes()))
        .where(col(VerdictRow.status).in_((Status.CORRECT,) if on_total else _RIGHT_FORWARD))
        .where(col(VerdictRow.forward_status) == StageStatus.PASSED)
    )
    if problem is not None:
        query = query.where(col(VerdictRow.problem) == problem)
    if device is not None:
        query = query.where(col(VerdictRow.device) == device)
    with store.reading() as session:
        return [Entry(rank=None, **row._mapping) for row in session.execute(query)]


def _newest_ids() -> Select[Any]:
    """The newest verdict on each text on each device, of those that say something about the text."""
    return (
        select(func.max(VerdictRow.id))
        .join(EnvironmentRow)
        .where(col(VerdictRow.variant).is_(None))
        .where(col(VerdictRow.status).not_in((Status.GRADER_ERROR, Status.NOT_RUN)))
        .group_by(
            col(VerdictRow.author),
            col(VerdictRow.label),
            col(VerdictRow.sample),
            col(VerdictRow.problem),
            col(VerdictRow.source_hash),
            col(EnvironmentRow.device_name),
        )
    )


def _newest_problem_hashes() -> Select[Any]:
    newest = select(func.max(VerdictRow.id)).group_by(col(VerdictRow.problem))
    return select(col(VerdictRow.problem_hash)).where(col(VerdictRow.id).in_(newest))


def _best_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each author, label, problem and device, in the order of the board."""
    best: dict[tuple[str, str, str, str | None], Entry] = {}
    for entry in sorted(entries, key=_board_order):
        best.setdefault((entry.problem, entry.device_name, entry.author, entry.label), entry)
    return list(best.values())


def _board_order(entry: Entry) -> tuple[str, str, str, float, int]:
    return (entry.problem, entry.device, entry.device_name, -(entry.ci_low or 0.0), entry.verdict_id)


def _ranked(entries: Iterable[Entry]) -> list[Entry]:
    ranked: list[Entry] = []
    for _, group in groupby(entries, key=lambda entry: (entry.problem, entry.device_name)):
        for rank, entry in enumerate(group, start=1):
            ranked.append(entry if entry.ci_low is None else entry.model_copy(update={"rank": rank}))
    return ranked


def _summaries(entries: Iterable[Entry]) -> list[Summary]:
    best: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for entry in entries:
        if entry.rank is not None:
            best[entry.author, entry.device_name].setdefault(entry.problem, entry)
    summaries = [
        Summary(
            author=author,
            device_name=device_name,
            problems=len(by_problem),
            geometric_mean_speedup=geometric_mean(entry.speedup for entry in by_problem.values() if entry.speedup),
            geometric_mean_ci_low=geometric_mean(entry.ci_low for entry in by_problem.values() if entry.ci_low),
        )
        for (author, device_name), by_problem in best.items()
    ]
    return sorted(summaries, key=lambda one: (one.device_name, -one.problems, -one.geometric_mean_ci_low))
