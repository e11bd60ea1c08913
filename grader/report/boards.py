"""The leaderboard as a table for the terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from db.labels import NOT_SOLUTIONS
from db.leaderboard import Leaderboard
from db.standings import MAX_SHARE_OF_BOUND
from db.summaries import Entry, Summary
from grader.report.console import one_line
from grader.report.listing import plain_lines
from grader.report.text import plain_table, style_of
from grader.verdict.precision import Precision

AUTHORS_RULE = (
    "geometric mean of speedups over all problems of the board; one without a ranked submission counts as 1.0x"
)
"""What authors rank by."""


def leaderboard_table(board: Leaderboard) -> RenderableType:
    """The board, and the summary by author if there are several problems or samples."""
    boards = _by_device(board)
    parts: list[RenderableType] = [_entries(one) for one in boards if one.entries] or [Text(empty_line(board))]
    if _has_summaries(board):
        parts += [Text(f"by author: {AUTHORS_RULE}"), *(_summaries(one) for one in boards if one.summaries)]
    if left_out := left_out_line(board):
        parts.append(Text(left_out))
    return Group(*parts)


def _by_device(board: Leaderboard) -> list[Leaderboard]:
    """The board of each device, in the order of its entries and summaries."""
    entries, summaries = defaultdict[str, list[Entry]](list), defaultdict[str, list[Summary]](list)
    for entry in board.entries:
        entries[entry.device_name].append(entry)
    for summary in board.summaries:
        summaries[summary.device_name].append(summary)
    return [
        board.model_copy(update={"entries": tuple(entries[name]), "summaries": tuple(summaries[name])})
        for name in dict.fromkeys((*entries, *summaries))
    ]


def leaderboard_plain(board: Leaderboard) -> str:
    """The same as lines with tabs between the cells, for a pipe."""
    lines = [empty_line(board)]
    if board.entries:
        cells = (_cells(entry, known=True, compared=True) for entry in board.entries)
        lines = list(plain_lines(_columns(known=True, compared=True), cells))
    if _has_summaries(board):
        lines += ["", *plain_lines(summary_header(board.summaries), map(summary_cells, board.summaries))]
    left_out = left_out_line(board)
    return "\n".join([*lines, *([left_out] if left_out else [])])


def _has_summaries(board: Leaderboard) -> bool:
    """Whether a summary says more than the entries: over several problems, or samples."""
    several = len({entry.problem for entry in board.entries}) > 1
    return bool(board.entries) and (several or any(one.pass_at_k for one in board.summaries))


def empty_line(board: Leaderboard) -> str:
    """The text that is printed instead of an empty board."""
    of = "" if board.labels.precision is Precision.FP32 else f" of {board.labels.precision}"
    return f"no verdict on the {board.board} board{of} yet"


def remarks(entry: Entry) -> Iterator[str]:
    """Remarks on an entry: not timed, not ranked, quick, another sandbox, labels."""
    if entry.speedup is None:
        yield "not timed"
    elif (entry.share_of_bound or 0.0) > MAX_SHARE_OF_BOUND:
        yield f"above {MAX_SHARE_OF_BOUND:.0%} of the roofline bound, not ranked"
    if entry.quick:
        yield "quick"
    if entry.sandbox != "bubblewrap":
        yield f"sandbox {entry.sandbox}"
    yield from entry.labels


def shown_rank(rank: int | None, tied: bool) -> str:
    """`1`, `=1` for a shared rank, `-` for none."""
    return "-" if rank is None else f"{'=' if tied else ''}{rank}"


def entrant(entry: Entry) -> str:
    """Author and label, as in a file's name."""
    return entry.author + (f"__{entry.label}" if entry.label else "")


def left_out_line(board: Leaderboard) -> str | None:
    """A line on the submissions that the board leaves out for their labels; None if there is none."""
    if not board.left_out:
        return None
    many = "1 submission" if board.left_out == 1 else f"{board.left_out} submissions"
    remedy = "; --all ranks copies of the reference too" if set(NOT_SOLUTIONS) & set(board.labels.without) else ""
    return f"{many} left out, labelled {' or '.join(board.labels.without)}{remedy}"


def summary_header(summaries: tuple[Summary, ...]) -> list[str]:
    """Column titles of `summary_cells`."""
    first = summaries[0]
    return [
        "rank",
        "author",
        "device",
        "ranked",
        "tried",
        "problems",
        "geometric mean",
        "at least",
        *(f"fast_{p}" for p in first.fast_p),
        *(f"pass@{k}" for k in first.pass_at_k),
    ]


def summary_cells(one: Summary) -> list[str]:
    """An author's figures as text; an absent one is empty."""
    return [
        shown_rank(one.rank, one.tied),
        one.author,
        one.device_name,
        str(one.problems),
        str(one.tried),
        str(one.of),
        _times(None if one.rank is None else one.geometric_mean_speedup),
        _times(None if one.rank is None else one.geometric_mean_ci_low),
        *(f"{share:.0%}" for share in one.fast_p.values()),
        *("" if chance is None else f"{chance:.0%}" for chance in one.pass_at_k.values()),
    ]


def _entries(board: Leaderboard) -> Table:
    """The board of one device."""
    known = any(entry.share_of_bound is not None for entry in board.entries)
    compared = any(entry.vs_compile is not None for entry in board.entries)
    columns = _columns(known=known, compared=compared)
    table = plain_table(*_beside_device(columns, columns))
    over = ", over the faster of torch.compile's modes" if board.against == "compile" else ""
    device = one_line(board.entries[0].device_name)
    table.title = f"{board.board} board on {device}{over}, ranked by the lower end of the 95% interval"
    for entry in board.entries:
        cells = _beside_device(columns, _cells(entry, known=known, compared=compared))
        *figures, status, verdict, remark = map(one_line, cells)
        table.add_row(*figures, Text(status, style=style_of(entry.status)), verdict, remark)
    return table


def _columns(*, known: bool, compared: bool) -> list[str]:
    figures = [*(["vs best compile"] if compared else []), *(["% of roofline"] if known else [])]
    return ["rank", "problem", "author", "device", "speedup", "at least", *figures, "status", "verdict", "remarks"]


def _cells(entry: Entry, *, known: bool, compared: bool) -> list[str]:
    share = "" if entry.share_of_bound is None else f"{entry.share_of_bound:.0%}"
    return [
        shown_rank(entry.rank, entry.tied),
        entry.problem,
        entrant(entry),
        entry.device_name,
        _times(entry.speedup),
        _times(entry.ci_low),
        *([_times(entry.vs_compile)] if compared else []),
        *([share] if known else []),
        str(entry.status),
        str(entry.verdict_id),
        ", ".join(remarks(entry)),
    ]


def _summaries(board: Leaderboard) -> Table:
    """The authors on one device."""
    columns = summary_header(board.summaries)
    table = plain_table(*_beside_device(columns, columns))
    table.title = f"on {one_line(board.summaries[0].device_name)}"
    for one in board.summaries:
        table.add_row(*map(one_line, _beside_device(columns, summary_cells(one))))
    return table


def _beside_device(columns: Sequence[str], cells: Sequence[str]) -> list[str]:
    """The cells of all columns but the device's, which the table's title names."""
    return [cell for column, cell in zip(columns, cells, strict=True) if column != "device"]


def _times(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.3f}x"
