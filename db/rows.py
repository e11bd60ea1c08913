"""Each verdict in short, read without its bulk."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import func, select
from sqlmodel import col

from db.standings import BEYOND_LIGHT
from db.store import Store
from db.tables import EnvironmentRow, VerdictRow
from grader.verdict.models import Device, StageStatus, Status

_RIGHT_FORWARD = (Status.CORRECT, Status.MISSING_BACKWARD, Status.WRONG_BACKWARD)

_PATHS = (
    "$.build.status",
    "$.timing.total.speedup",
    "$.timing.total.ci_low",
    "$.timing.total.ci_high",
    "$.timing.forward.speedup",
    "$.timing.forward.ci_low",
    "$.timing.forward.ci_high",
    "$.timing.total.bound_ms",
    "$.timing.total.candidate_ms",
    "$.timing.forward.bound_ms",
    "$.timing.forward.candidate_ms",
)


@dataclass(frozen=True)
class Speedup:
    """A speedup with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One verdict in short."""

    id: int
    problem: str
    author: str
    label: str | None
    sample: int | None
    device: Device
    device_name: str
    status: Status
    variant: str | None
    quick: bool
    sandbox: str
    source_hash: str
    problem_hash: str
    created_at: str
    built: bool
    total: Speedup | None
    forward: Speedup | None
    total_light: float | None = None
    """Speed of light over the time taken, 1 where nothing could be faster; None where no bound is known."""
    forward_light: float | None = None

    @property
    def name(self) -> str:
        """The author with the label and the sample, where there are any."""
        sample = "" if self.sample is None else f" sample {self.sample}"
        return self.author + (f"__{self.label}" if self.label else "") + sample

    def believed(self, board: Literal["total", "forward"]) -> Speedup | None:
        """The speedup as it is counted: none beyond what anybody believes, and none above the speed of light."""
        speedup, light = (self.total, self.total_light) if board == "total" else (self.forward, self.forward_light)
        if speedup is None or (light or 0.0) > BEYOND_LIGHT:
            return None
        share = max(1.0, light or 0.0)
        return Speedup(speedup.value / share, speedup.low / share, speedup.high / share)

    @property
    def right_forward(self) -> bool:
        """Whether the forward matches, and nothing speaks against the whole."""
        return self.status in _RIGHT_FORWARD

    @property
    def correct(self) -> bool:
        """Whether all of it matches."""
        return self.status is Status.CORRECT


def read_rows(store: Store, *, after: int = 0) -> list[Row]:
    """Every verdict, or those with a higher id, oldest first."""
    columns: list[Any] = [
        col(VerdictRow.id),
        col(VerdictRow.problem),
        col(VerdictRow.author),
        col(VerdictRow.label),
        col(VerdictRow.sample),
        col(VerdictRow.device),
        col(EnvironmentRow.device_name),
        col(VerdictRow.status),
        col(VerdictRow.variant),
        col(VerdictRow.quick),
        col(VerdictRow.sandbox),
        col(VerdictRow.source_hash),
        col(VerdictRow.problem_hash),
        col(VerdictRow.created_at),
        func.json_extract(VerdictRow.document, *_PATHS).label("figures"),
    ]
    with store.reading() as session:
        found = session.execute(
            select(*columns).join(EnvironmentRow).where(col(VerdictRow.id) > after).order_by(col(VerdictRow.id))
        )
        return [_row(dict(one._mapping)) for one in found]


def counted(rows: Iterable[Row]) -> list[Row]:
    """What the figures count: the newest verdict on each text and device, on the problem's newest text.

    As on the leaderboard, verdicts on one variant and failures of the grader say nothing about a text.
    `not_run` stays only where no other verdict on the text is known.
    """
    rows = list(rows)
    newest_problem = {row.problem: row.problem_hash for row in rows}
    newest: dict[tuple[object, ...], Row] = {}
    for row in rows:
        usable = row.variant is None and row.status is not Status.GRADER_ERROR
        if usable and row.problem_hash == newest_problem[row.problem]:
            key = (*_text(row), row.device_name)
            if row.status is not Status.NOT_RUN or key not in newest:
                newest[key] = row
    return sorted(_without_superseded(newest.values()), key=lambda row: row.id)


def _without_superseded(rows: Iterable[Row]) -> Iterator[Row]:
    rows = list(rows)
    graded = {_text(row) for row in rows if row.status is not Status.NOT_RUN}
    return (row for row in rows if row.status is not Status.NOT_RUN or _text(row) not in graded)


def _text(row: Row) -> tuple[object, ...]:
    return (row.author, row.label, row.sample, row.problem, row.source_hash)


def _row(columns: dict[str, Any]) -> Row:
    build, *figures = json.loads(columns.pop("figures"))
    return Row(
        **{
            **columns,
            "device": Device(columns["device"]),
            "status": Status(columns["status"]),
            "quick": bool(columns["quick"]),
        },
        built=build == StageStatus.PASSED,
        total=_speedup(figures[:3]),
        forward=_speedup(figures[3:6]),
        total_light=_share(*figures[6:8]),
        forward_light=_share(*figures[8:]),
    )


def _speedup(figures: list[Any]) -> Speedup | None:
    """None where any of the three is absent, infinite or no speedup at all: such figures rank nowhere."""
    if any(figure is None for figure in figures):
        return None
    numbers = [float(figure) for figure in figures]
    return Speedup(*numbers) if all(math.isfinite(number) and number > 0 for number in numbers) else None


def _share(bound_ms: Any, candidate_ms: Any) -> float | None:
    if bound_ms is None or candidate_ms is None:
        return None
    bound, candidate = float(bound_ms), float(candidate_ms)
    share = bound / candidate if candidate > 0 else math.inf
    return share if math.isfinite(share) and share > 0 else None
