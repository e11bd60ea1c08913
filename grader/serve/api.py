"""The JSON API; its schema is /api/openapi.json."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Response
from pydantic import Field, create_model

from db import Store
from db.against import Speedup
from db.labels import LabelChoice
from db.leaderboard import Against, Board, Leaderboard, leaderboard
from db.rows import Row
from grader.errors import StoreError
from grader.report.json_csv import json_line
from grader.serve.snapshot import Snapshots
from grader.verdict.columns import LISTED
from grader.verdict.labels import LABELS, LANGUAGES
from grader.verdict.models import Device, Status, Verdict
from grader.verdict.precision import Precision
from grader.verdict.value import Value

Label = StrEnum("Label", [(label.upper(), label) for label in LABELS])  # type: ignore[misc]
"""The labels, as the schema lists them."""
LanguageName = StrEnum("LanguageName", [(name.upper(), name) for name in LANGUAGES])  # type: ignore[misc]
"""The languages, as the schema lists them."""

_MOST = 1000
"""Verdicts in one response."""


def _listed_fields() -> dict[str, Any]:
    """A field for each listed column, in the order of the table."""
    return {
        column.name: (
            column.kind | None if column.optional else column.kind,
            Field(description=column.description),
        )
        for column in LISTED
    }


VerdictInShort: type[Value] = create_model(
    "VerdictInShort",
    __base__=Value,
    __doc__="A verdict in short; `/api/verdicts/{id}` returns it in full.",
    id=(int, Field(description="The verdict's number in its database.")),
    **_listed_fields(),
    total=(Speedup | None, Field(description="Forward and backward together, over eager PyTorch, with its interval.")),
    forward=(Speedup | None, Field(description="The forward only, over eager PyTorch, with its 95% interval.")),
    total_share_of_bound=(float | None, Field(description="Roofline bound divided by the measured time.")),
    forward_share_of_bound=(float | None, Field(description="Roofline bound divided by the forward's time.")),
)
"""The listed columns of a verdict with its speedups, as `db.rows.Row` has them."""


class Verdicts(Value):
    """One page of verdicts, by ascending id."""

    verdicts: tuple[VerdictInShort, ...]  # type: ignore[valid-type]
    next_after: int | None
    """The `after` of the next page; null at the end."""


class ProblemInShort(Value):
    """A problem with its counts, over the submissions that the leaderboards count."""

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
        """Verdicts in short, filtered, including those that no board counts."""
        wanted = {"problem": problem, "author": author, "status": status, "device": device}
        requested = [(name, value) for name, value in wanted.items() if value is not None]
        matching = (
            row
            for row in snapshots.current().rows
            if row.id > after and all(getattr(row, name) == value for name, value in requested)
        )
        shown = [row for _, row in zip(range(limit + 1), matching, strict=False)]
        return Verdicts(
            verdicts=tuple(map(_in_short, shown[:limit])),
            next_after=shown[limit - 1].id if len(shown) > limit else None,
        )

    @router.get("/verdicts/{verdict_id}", response_model=Verdict)
    def verdict(verdict_id: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
        """One verdict in full."""
        try:
            stored = store.get(verdict_id)
        except StoreError as error:
            raise HTTPException(404, f"no verdict {verdict_id} that this grader can read") from error
        # The model writes infinity, which JSON lacks, as text.
        return Response(json_line(stored.verdict), media_type="application/json")

    @router.get("/leaderboard", response_model=Leaderboard)
    def board(
        board: Board = "total",
        problem: str | None = None,
        device: Device | None = None,
        having: Annotated[list[Label], Query(description="Only submissions with all of these labels.")] = [],  # noqa: B006
        without: Annotated[list[Label], Query(description="Leave out submissions with one of these labels.")] = [],  # noqa: B006
        language: Annotated[list[LanguageName], Query(description="Only submissions in all of these languages.")] = [],  # noqa: B006
        against: Annotated[Against, Query(description="What speedups are over.")] = "eager",
        everything: Annotated[bool, Query(alias="all", description="Rank also copies of the reference.")] = False,
        precision: Annotated[Precision, Query(description="Only what was graded in it.")] = Precision.FP32,
    ) -> Response:
        """A board by problem and device, best first, with a summary by author."""
        labels = LabelChoice.of([*having, *language], without, everything=everything, precision=precision)
        result = leaderboard(store, board=board, problem=problem, device=device, labels=labels, against=against)
        return Response(json_line(result), media_type="application/json")

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


def _in_short(row: Row) -> Value:
    return VerdictInShort(**{name: getattr(row, name) for name in VerdictInShort.model_fields})
