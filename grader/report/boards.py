"""The leaderboard as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from db.leaderboard import Leaderboard
from db.standings import BEYOND_LIGHT
from db.summaries import Entry, Summary
from grader.report.console import one_line
from grader.report.text import plain_table, style_of


def leaderboard_table(board: Leaderboard) -> RenderableType:
    """The board, and the summary by author if there are several problems or samples."""
    if not board.entries:
        return Text(f"no verdict on the {board.board} board yet")
    parts: list[RenderableType] = [_entries(board)]
    if len({entry.problem for entry in board.entries}) > 1 or any(one.pass_at_k for one in board.summaries):
        parts.append(_summaries(board))
    return Group(*parts)


def remarks(entry: Entry) -> Iterator[str]:
    """Remarks on an entry: not timed, not ranked, quick, another sandbox, labels."""
    if entry.speedup is None:
        yield "not timed"
    elif (entry.share_of_light or 0.0) > BEYOND_LIGHT:
        yield f"above {BEYOND_LIGHT:.0%} of the roofline bound, not ranked"
    if entry.quick:
        yield "quick"
    if entry.sandbox != "bubblewrap":
        yield f"sandbox {entry.sandbox}"
    yield from entry.labels


def rank_of(entry: Entry) -> str:
    """`1`, `=1` for a shared rank, `-` for none."""
    return "-" if entry.rank is None else f"{'=' if entry.tied else ''}{entry.rank}"


def entrant(entry: Entry) -> str:
    """Author and label, as in a file's name."""
    return entry.author + (f"__{entry.label}" if entry.label else "")


def summary_header(summaries: tuple[Summary, ...]) -> list[str]:
    """Column titles of `summary_cells`."""
    first = summaries[0]
    return [
        "author",
        "device",
        "ranked of tried",
        "geometric mean",
        "at least",
        *(f"fast_{p}" for p in first.fast_p),
        *(f"pass@{k}" for k in first.pass_at_k),
    ]


def summary_cells(one: Summary) -> list[str]:
    """An author's figures as text; an absent one is empty."""
    return [
        one.author,
        one.device_name,
        f"{one.problems} of {one.tried}",
        _times(one.geometric_mean_speedup),
        _times(one.geometric_mean_ci_low),
        *(f"{share:.0%}" for share in one.fast_p.values()),
        *("" if chance is None else f"{chance:.0%}" for chance in one.pass_at_k.values()),
    ]


def _entries(board: Leaderboard) -> Table:
    known = any(entry.share_of_light is not None for entry in board.entries)
    light = ["% of roofline"] if known else []
    table = plain_table(
        "rank", "problem", "author", "device", "speedup", "at least", *light, "status", "verdict", "remarks"
    )
    table.title = f"{board.board} board, ranked by the lower end of the 95% interval"
    for entry in board.entries:
        share = "" if entry.share_of_light is None else f"{entry.share_of_light:.0%}"
        table.add_row(
            rank_of(entry),
            one_line(entry.problem),
            one_line(entrant(entry)),
            one_line(entry.device_name),
            _times(entry.speedup),
            _times(entry.ci_low),
            *([share] if known else []),
            Text(entry.status, style=style_of(entry.status)),
            str(entry.verdict_id),
            ", ".join(remarks(entry)),
        )
    return table


def _summaries(board: Leaderboard) -> Table:
    table = plain_table(*summary_header(board.summaries))
    table.title = "by author; means over ranked problems, shares over attempted problems"
    for one in board.summaries:
        table.add_row(*(one_line(cell) for cell in summary_cells(one)))
    return table


def _times(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.3f}x"
