"""The overview pages: index, problems, authors, matrices, lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from db.leaderboard import Board
from db.metrics import FAST_P
from db.rows import Row
from grader.report.boards import AUTHORS_RULE
from grader.report.site import names
from grader.report.site.boards import AuthorPlace, Boards, Place
from grader.report.site.charts import MOST_BARS, bound_axis, bound_chart, fast_p_chart, funnel_chart
from grader.report.site.code import highlight, numbered
from grader.report.site.figures import (
    FAST_P_STEPS,
    BoundShares,
    DeviceRows,
    FastP,
    Funnel,
    best_cells,
    bound_shares,
    devices,
    failures,
    fast_p,
    funnel,
)
from grader.report.site.history import Best, history_chart, records
from grader.report.site.pages import STATIC, Frame, render
from grader.report.site.timing_charts import intervals_chart

_MOST_ROWS = 100
"""Rows of a table on the index, so that it opens fast."""

_MOST_VERDICTS = 250
"""Rows of a table on any other page."""

_MOST_COLUMNS = 40

_LATEST = 10


class _ProblemLine(NamedTuple):
    problem: str
    correct: int
    tried: int
    total: Place | None
    forward: Place | None


class _Section(NamedTuple):
    """The index's section about one device."""

    key: str
    device: DeviceRows
    funnel: Funnel
    matrix: str
    authors: dict[Board, list[AuthorPlace]]
    problems: list[_ProblemLine]
    fast: FastP
    fast_svg: Markup
    intervals: dict[Board, Markup]
    bound_shares: list[BoundShares]
    """Empty if no bound is known."""
    bound_svg: Markup


class _ProblemSection(NamedTuple):
    key: str
    device_name: str
    boards: dict[Board, list[Place]]
    records: list[Best]
    """Submissions that raised the best speedup, newest first."""
    records_svg: Markup


def index_page(rows: Sequence[Row], counted: Sequence[Row], boards: Boards, frame: Frame = STATIC) -> str:
    """The first page."""
    stages, failed = funnel(counted), failures(counted)
    return render(
        "index.html",
        names.INDEX,
        frame.title,
        frame=frame,
        failures=failed[:_MOST_ROWS],
        failed=sum(count for _, count in failed),
        bound_axis=bound_axis,
        most_bars=MOST_BARS,
        verdict_count=len(rows),
        problem_count=len({row.problem for row in rows}),
        author_count=len({row.author for row in rows}),
        newest=rows[-1].created_at if rows else None,
        funnel=stages,
        funnel_svg=funnel_chart(stages),
        sections=[_section(device, boards) for device in devices(counted)],
        boards=boards,
        authors_rule=AUTHORS_RULE,
        latest=list(reversed(rows[-_LATEST:])),
        marks=FAST_P,
        one_step=FAST_P_STEPS.index(1.0),
        most_rows=_MOST_ROWS,
    )


def problem_page(
    problem: str, rows: Sequence[Row], counted: Sequence[Row], boards: Boards, source: str, frame: Frame = STATIC
) -> str:
    """One problem's page: its boards on each device, its verdicts, its reference."""
    sections = [_problem_section(device, problem, boards) for device in devices(counted)]
    return render(
        "problem.html",
        names.problem_page(problem),
        problem,
        frame=frame,
        problem=problem,
        funnel=funnel(counted),
        sections=[section for section in sections if section.boards],
        rows=_newest(rows),
        caption=_caption(rows),
        source=numbered(highlight(source)),
    )


def author_page(author: str, rows: Sequence[Row], counted: Sequence[Row], boards: Boards, frame: Frame = STATIC) -> str:
    """One author's page: results by stage, places on the boards, and all verdicts."""
    stages = funnel(counted)
    places = [
        (board, place.summary)
        for board, one in boards.by_name.items()
        for found in one.authors.values()
        for place in found
        if place.summary.author == author
    ]
    return render(
        "author.html",
        names.author_page(author),
        author,
        frame=frame,
        author=author,
        places=places,
        authors_rule=AUTHORS_RULE,
        funnel=stages,
        funnel_svg=funnel_chart(stages),
        rows=_newest(rows),
        caption=_caption(rows),
    )


def matrix_page(device: DeviceRows, frame: Frame = STATIC) -> str:
    """The page with the matrix of problems and authors on one device."""
    authors = device.authors
    return render(
        "matrix.html",
        names.matrix_page(device.name),
        f"{device.name}: problems × authors",
        frame=frame,
        device=device,
        authors=authors[:_MOST_COLUMNS],
        more=len(authors) > _MOST_COLUMNS,
        cells=best_cells(device.rows),
    )


def list_count(rows: Sequence[Row]) -> int:
    """Number of pages of the list of all verdicts."""
    return max(1, -(-len(rows) // _MOST_VERDICTS))


def list_page(rows: Sequence[Row], number: int, frame: Frame = STATIC) -> str:
    """One page of the list of all verdicts, newest first; `number` counts from 1."""
    end = len(rows) - (number - 1) * _MOST_VERDICTS
    return render(
        "list.html",
        names.list_page(number),
        f"All verdicts, page {number}",
        frame=frame,
        rows=list(reversed(rows[max(0, end - _MOST_VERDICTS) : end])),
        number=number,
        count=list_count(rows),
    )


def _section(device: DeviceRows, boards: Boards) -> _Section:
    key = names.anchor(device.name)
    taken = [row for row in device.rows if boards.labels.takes(row.labels)]
    figures, near = fast_p(taken), bound_shares(taken)
    places: dict[Board, list[Place]] = {
        board: [place for (name, _), found in one.places.items() if name == device.name for place in found]
        for board, one in boards.by_name.items()
    }
    timed: dict[Board, list[Place]] = {
        board: [place for place in found if place.speedup] for board, found in places.items()
    }
    return _Section(
        key=key,
        device=device,
        funnel=funnel(device.rows),
        matrix=names.matrix_page(device.name),
        authors={board: one.authors.get(device.name, []) for board, one in boards.by_name.items()},
        problems=list(_problem_lines(device, boards)),
        fast=figures,
        fast_svg=fast_p_chart(figures, f"{key}-fast-chart"),
        intervals={
            board: intervals_chart([(one.row, one.speedup) for one in found if one.speedup], f"{key}-i-{board}")
            for board, found in timed.items()
            if found
        },
        bound_shares=near,
        bound_svg=bound_chart(near, f"{key}-bound"),
    )


def _problem_section(device: DeviceRows, problem: str, boards: Boards) -> _ProblemSection:
    key = names.anchor(device.name)
    found = records(row for row in device.rows if boards.labels.takes(row.labels))
    newest = max((row.created_at for row in device.rows), default="")
    svg = history_chart(found, newest, f"{key}-history") if len(found) > 1 else Markup("")
    return _ProblemSection(key, device.name, _boards_of(boards, device.name, problem), found[::-1], svg)


def _problem_lines(device: DeviceRows, boards: Boards) -> Iterator[_ProblemLine]:
    by_problem: dict[str, list[Row]] = defaultdict(list)
    for row in device.rows:
        by_problem[row.problem].append(row)
    for problem, rows in sorted(by_problem.items()):
        leaders = _boards_of(boards, device.name, problem)
        yield _ProblemLine(
            problem,
            sum(row.correct for row in rows),
            len(rows),
            total=next(iter(leaders.get("total", ())), None),
            forward=next(iter(leaders.get("forward", ())), None),
        )


def _boards_of(boards: Boards, device_name: str, problem: str) -> dict[Board, list[Place]]:
    """The problem's boards that are not empty."""
    found = {board: one.places.get((device_name, problem)) for board, one in boards.by_name.items()}
    return {board: places for board, places in found.items() if places}


def _newest(rows: Sequence[Row]) -> list[Row]:
    return list(reversed(rows[-_MOST_VERDICTS:]))


def _caption(rows: Sequence[Row]) -> str:
    shown = min(len(rows), _MOST_VERDICTS)
    return "Newest first" + (f"; the newest {shown} of {len(rows)}" if shown < len(rows) else "")
