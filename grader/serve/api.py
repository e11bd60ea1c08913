"""The same for programs: JSON, with a schema under /api/openapi.json."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Response

from db import Store
from db.leaderboard import Board, Leaderboard, leaderboard
from db.rows import Row, Speedup
from grader.errors import StoreError
from grader.report.machine import json_line
from grader.serve.snapshot import Snapshots
from grader.verdict.models import Device, Status, Value, Verdict

_MOST = 1000


class VerdictInShort(Value):
    """A verdict without its bulk; `/api/verdicts/{id}` has the whole."""

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
    total: Speedup | None
    """Forward and backward together, over eager PyTorch, with its 95% interval."""
    forward: Speedup | None
    total_light: float | None
    """Speed of light over the time taken."""
    forward_light: float | None


class Verdicts(Value):
    """Some verdicts, by ascending id."""

    verdicts: tuple[VerdictInShort, ...]
    next_after: int | None
    """Ask with `after` set to this for more; null at the end."""


class ProblemInShort(Value):
    """What is known about a problem; counts are over submissions as the leaderboards count them."""

    id: str
    submissions: int
    right_forward: int
    correct: int


def api(store: Store, snapshots: Snapshots) -> APIRouter:
    """The routes under /api."""
    router = APIRouter(prefix="/api", tags=["verdicts"])

    @router.get("/verdicts")
    def verdicts(
        problem: str | None = None,
        author: str | None = None,
        status: Status | None = None,
        device: Device | None = None,
        after: Annotated[int, Query(ge=0, description="Only ids above this.")] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = 100,
    ) -> Verdicts:
        """Every verdict in short, filtered; also those that no board counts."""
        wanted = {"problem": problem, "author": author, "status": status, "device": device}
        asked = [(name, value) for name, value in wanted.items() if value is not None]
        found = (
            row
            for row in snapshots.current().rows
            if row.id > after and all(getattr(row, name) == value for name, value in asked)
        )
        shown = [row for _, row in zip(range(limit + 1), found, strict=False)]
        return Verdicts(
            verdicts=tuple(map(_in_short, shown[:limit])),
            next_after=shown[limit - 1].id if len(shown) > limit else None,
        )

    @router.get("/verdicts/{verdict_id}", response_model=Verdict)
    def verdict(verdict_id: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
        """One verdict, whole."""
        try:
            stored = store.get(verdict_id)
        except StoreError as error:
            raise HTTPException(404, f"no verdict {verdict_id} that this grader can read") from error
        # JSON has no infinity; the model writes one as text.
        return Response(json_line(stored.verdict), media_type="application/json")

    @router.get("/leaderboard", response_model=Leaderboard)
    def board(board: Board = "total", problem: str | None = None, device: Device | None = None) -> Response:
        """A board by problem and device, best first, and its summary by author."""
        found = leaderboard(store, board=board, problem=problem, device=device)
        return Response(json_line(found), media_type="application/json")

    @router.get("/problems")
    def problems() -> list[ProblemInShort]:
        """Every problem that has a verdict."""
        snapshot = snapshots.current()
        by_problem: dict[str, list[Row]] = {problem: [] for problem in snapshot.problems.values()}
        for row in snapshot.counted:
            by_problem[row.problem].append(row)
        return [
            ProblemInShort(
                id=problem,
                submissions=len(rows),
                right_forward=sum(row.right_forward for row in rows),
                correct=sum(row.correct for row in rows),
            )
            for problem, rows in by_problem.items()
        ]

    return router


def _in_short(row: Row) -> VerdictInShort:
    return VerdictInShort(**{name: getattr(row, name) for name in VerdictInShort.model_fields})
