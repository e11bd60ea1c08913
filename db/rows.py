"""Verdicts in short: their listed columns and their speedups, read without the rest of the document."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

from sqlalchemy import ColumnElement, func, literal_column, select
from sqlmodel import SQLModel

from db.against import Speedup, over_compile
from db.bound import at_most_the_bound, is_beyond
from db.standings import SOURCE_KEY
from db.store import Store
from db.tables import EnvironmentRow, verdicts
from grader.verdict.columns import LISTED
from grader.verdict.models import SAYS_NOTHING, Device, Status
from grader.verdict.precision import Precision
from grader.verdict.stages import StageStatus

_RIGHT_FORWARD = (Status.CORRECT, Status.MISSING_BACKWARD, Status.WRONG_BACKWARD)

_PHASE = ("speedup", "ci_low", "ci_high", "bound_ms", "candidate_ms", "reference_ms")
_PATHS = (
    "$.build.status",
    "$.timing.baselines",
    *(f"$.timing.{board}.{name}" for board in ("total", "forward") for name in _PHASE),
)

_CODES: ColumnElement[str] = literal_column(
    "(select json_group_array(json_extract(one.value, '$.code')) from json_each(verdicts.document, '$.diagnoses') one)"
).label("codes")


source_key = attrgetter(*SOURCE_KEY)
"""The key that verdicts of one source share, of which the newest counts."""
_source_anywhere = attrgetter(*(name for name in SOURCE_KEY if name != "device_name"))


@dataclass(frozen=True)
class Row:
    """One verdict in short: a field for each listed column of `grader.verdict.columns`, and the speedups."""

    id: int
    problem: str
    author: str
    label: str | None
    sample: int | None
    device: Device
    device_name: str
    status: Status
    labels: tuple[str, ...]
    variant: str | None
    quick: bool
    strict_fp32: bool
    sandbox: str
    source_hash: str
    problem_hash: str
    created_at: str
    precision: Precision
    built: bool
    total: Speedup | None
    forward: Speedup | None
    codes: tuple[str, ...] = ()
    """Codes of the diagnoses, the cause first."""
    total_share_of_bound: float | None = None
    """Roofline bound over the time taken, 1 at the bound; None if no bound is known."""
    forward_share_of_bound: float | None = None
    total_compile: float | None = None
    """Speedup over the faster of torch.compile's modes; None if none was timed."""
    forward_compile: float | None = None

    @property
    def name(self) -> str:
        """The author, with the label and the sample if there are any."""
        sample = "" if self.sample is None else f" sample {self.sample}"
        return self.author + (f"__{self.label}" if self.label else "") + sample

    @property
    def part(self) -> str:
        """The label and the sample, as text; empty without them."""
        sample = [] if self.sample is None else [f"sample {self.sample}"]
        return ", ".join([*([self.label] if self.label else []), *sample])

    def believed(self, board: Literal["total", "forward"]) -> Speedup | None:
        """The speedup that means count: at most that of the roofline bound, None if it is far beyond."""
        if board == "total":
            speedup, share = self.total, self.total_share_of_bound
        else:
            speedup, share = self.forward, self.forward_share_of_bound
        if speedup is None or is_beyond(share):
            return None
        return Speedup(*(at_most_the_bound(one, share) for one in (speedup.value, speedup.low, speedup.high)))

    @property
    def right_forward(self) -> bool:
        """Whether the forward matches, without an integrity violation."""
        return self.status in _RIGHT_FORWARD

    @property
    def correct(self) -> bool:
        """Whether outputs and gradients match."""
        return self.status is Status.CORRECT


def read_rows(store: Store, *, after: int = 0, run: int | None = None) -> list[Row]:
    """Every verdict, or those with a higher id than `after`, or of one run, oldest first."""
    query = (
        select(
            verdicts.c.id,
            *(SQLModel.metadata.tables[column.stored].c[column.name] for column in LISTED if column.stored),
            func.json_extract(verdicts.c.document, *_PATHS).label("figures"),
            _CODES,
        )
        .join(EnvironmentRow)
        .where(verdicts.c.id > after)
        .order_by(verdicts.c.id)
    )
    if run is not None:
        query = query.where(verdicts.c.run_id == run)
    with store.reading() as session:
        return [_row(dict(one._mapping)) for one in session.execute(query)]


def counted(rows: Iterable[Row]) -> list[Row]:
    """The verdicts that count on boards, and `not_run` for sources without such a verdict on any device.

    `db.standings` has the rule: the newest for each of `SOURCE_KEY`, on the newest source of the problem.
    """
    whole = [row for row in rows if row.variant is None and row.status is not Status.GRADER_ERROR]
    graded = [row for row in whole if row.status not in SAYS_NOTHING]
    current = {row.problem: row.problem_hash for group in (whole, graded) for row in group}
    newest = {source_key(row): row for row in graded if row.problem_hash == current[row.problem]}
    anywhere = {_source_anywhere(row) for row in newest.values()}
    for row in whole:
        if row.problem_hash == current[row.problem] and _source_anywhere(row) not in anywhere:
            newest[source_key(row)] = row
    return sorted(newest.values(), key=attrgetter("id"))


def _row(columns: dict[str, Any]) -> Row:
    """Raises ValueError if a cell is not of its column's type, which only a damaged file has."""
    build, baselines, *figures = json.loads(columns.pop("figures"))
    total = dict(zip(_PHASE, figures[: len(_PHASE)], strict=True))
    forward = dict(zip(_PHASE, figures[len(_PHASE) :], strict=True))
    for column in LISTED:
        cell = columns[column.name]
        if not isinstance(cell, column.cell_type) and not (cell is None and column.optional):
            raise ValueError(f"verdict {columns['id']}: {column.name} is {str(cell)[:40]!r}")
        if issubclass(column.kind, StrEnum):
            columns[column.name] = column.kind(str(cell))
        elif column.kind is tuple:
            columns[column.name] = _texts(str(cell))
    codes = _texts(columns.pop("codes"))
    return Row(
        **columns,
        codes=codes,
        built=build == StageStatus.PASSED,
        total=_speedup(total),
        forward=_speedup(forward),
        total_share_of_bound=_share(total),
        forward_share_of_bound=_share(forward),
        total_compile=_over_compile(baselines, "total", total),
        forward_compile=_over_compile(baselines, "forward", forward),
    )


def _over_compile(baselines: Any, figure: Literal["total", "forward"], phase: dict[str, Any]) -> float | None:
    over = over_compile(baselines, figure, phase) if baselines else None
    return over.value if over else None


@lru_cache(maxsize=1024)
def _texts(cell: str) -> tuple[str, ...]:
    return tuple(map(str, json.loads(cell)))


def _speedup(phase: dict[str, Any]) -> Speedup | None:
    """None if one of the three is absent, infinite or not positive: such a speedup is not ranked."""
    figures = [phase[name] for name in ("speedup", "ci_low", "ci_high")]
    if any(figure is None for figure in figures):
        return None
    numbers = [float(figure) for figure in figures]
    return Speedup(*numbers) if all(math.isfinite(number) and number > 0 for number in numbers) else None


def _share(phase: dict[str, Any]) -> float | None:
    if phase["bound_ms"] is None or phase["candidate_ms"] is None:
        return None
    bound, candidate = float(phase["bound_ms"]), float(phase["candidate_ms"])
    share = bound / candidate if candidate > 0 else math.inf
    return share if math.isfinite(share) and share > 0 else None
