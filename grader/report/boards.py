"""The leaderboard as text: tables for a terminal, lines for a pipe, Markdown, JSON and CSV."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from db.bound import MAX_SHARE_OF_BOUND, is_beyond
from db.labels import NOT_SOLUTIONS
from db.leaderboard import Leaderboard
from db.summaries import Entry, Summary
from grader.report.console import clean, one_line, plain_table
from grader.report.json_csv import csv_lines, escaped_json
from grader.report.listing import plain_lines
from grader.report.text import style_of
from grader.verdict.precision import Precision

AUTHORS_RULE = (
    "geometric mean of speedups over all problems of the board; one without a ranked submission counts as 1.0x"
)
"""What authors rank by."""

MAY_BE_UNKNOWN = ("vs best compile", "% of roofline")
"""Columns that the terminal leaves out where no entry has a figure."""
_FIGURES = ("speedup", "at least", *MAY_BE_UNKNOWN)
COLUMNS = ("rank", "problem", "author", "device", *_FIGURES, "status", "verdict", "remarks")
"""Columns of a board in the terminal."""
_IN_MARKDOWN = (*COLUMNS[:4], "speedup", "95% interval", "vs best compile", "status", "remarks")


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
        rows = map(entry_cells, board.entries)
        lines = list(plain_lines(COLUMNS, ([cells[column] for column in COLUMNS] for cells in rows)))
    if _has_summaries(board):
        authors = list(map(summary_cells, board.summaries))
        lines += ["", *plain_lines(list(authors[0]), (list(cells.values()) for cells in authors))]
    left_out = left_out_line(board)
    return "\n".join([*lines, *([left_out] if left_out else [])])


def leaderboard_markdown(board: Leaderboard) -> str:
    """A table of the entries and one of the authors, with what they rank by."""
    left_out = left_out_line(board)
    below = f"\n\n{_markdown_cell(left_out)}." if left_out else ""
    if not board.entries:
        return empty_line(board) + below
    rows = list(map(entry_cells, board.entries))
    columns = [one for one in _IN_MARKDOWN if one != "vs best compile" or any(cells[one] for cells in rows)]
    entries = _markdown_table(columns, ([cells[column] for column in columns] for cells in rows))
    authors = list(map(summary_cells, board.summaries))
    summaries = _markdown_table(list(authors[0]), (list(cells.values()) for cells in authors))
    return f"{entries}\n\nBy author: {AUTHORS_RULE}.\n\n{summaries}{below}"


def leaderboard_json(board: Leaderboard) -> str:
    """The whole board as one indented JSON object."""
    return escaped_json(board.model_dump_json(indent=2))


def leaderboard_csv(board: Leaderboard) -> str:
    """The board as CSV: a header, then one record per entry."""
    rows = [entry.model_dump(mode="json") | {"labels": " ".join(entry.labels)} for entry in board.entries]
    return "".join(csv_lines(tuple(Entry.model_fields), rows)).removesuffix("\n")


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(text: str) -> str:
    """Foreign text escaped for one table cell: no markup and no line breaks."""
    escaped = "".join(f"\\{letter}" if letter in r"\`*_{}[]<>#|!~" else letter for letter in clean(text))
    return escaped.replace("\n", " ")


def _has_summaries(board: Leaderboard) -> bool:
    """Whether a summary says more than the entries: over several problems, or samples."""
    several = len({entry.problem for entry in board.entries}) > 1
    return bool(board.entries) and (several or any(one.pass_at_k for one in board.summaries))


def empty_line(board: Leaderboard) -> str:
    """The text that is printed instead of an empty board."""
    suffix = "" if board.labels.precision is Precision.FP32 else f" of {board.labels.precision}"
    return f"no verdict on the {board.board} board{suffix} yet"


def remarks(entry: Entry) -> Iterator[str]:
    """Remarks on an entry: not timed, not ranked, quick, another sandbox, labels."""
    if entry.speedup is None:
        yield "not timed"
    elif is_beyond(entry.share_of_bound):
        yield f"above {MAX_SHARE_OF_BOUND:.0%} of the roofline bound, not ranked"
    if entry.quick:
        yield "quick"
    if entry.sandbox != "bubblewrap":
        yield f"sandbox {entry.sandbox}"
    yield from entry.labels


def shown_rank(rank: int | None, tied: bool) -> str:
    """`1`, `=1` for a shared rank, `-` for none."""
    return "-" if rank is None else f"{'=' if tied else ''}{rank}"


def left_out_line(board: Leaderboard) -> str | None:
    """A line on the submissions that the board leaves out for their labels; None if there is none."""
    if not board.left_out:
        return None
    many = "1 submission" if board.left_out == 1 else f"{board.left_out} submissions"
    remedy = "; --all ranks copies of the reference too" if set(NOT_SOLUTIONS) & set(board.labels.without) else ""
    return f"{many} left out, labelled {' or '.join(board.labels.without)}{remedy}"


def entry_cells(entry: Entry) -> dict[str, str]:
    """An entry as text by column; an absent figure is empty."""
    both = entry.ci_low is not None and entry.ci_high is not None
    return {
        "rank": shown_rank(entry.rank, entry.tied),
        "problem": entry.problem,
        "author": entry.author + (f"__{entry.label}" if entry.label else ""),
        "device": entry.device_name,
        "speedup": _times(entry.speedup),
        "at least": _times(entry.ci_low),
        "95% interval": f"{entry.ci_low:.3f} to {entry.ci_high:.3f}" if both else "",
        "vs best compile": _times(entry.vs_compile),
        "% of roofline": "" if entry.share_of_bound is None else f"{entry.share_of_bound:.0%}",
        "status": str(entry.status),
        "verdict": str(entry.verdict_id),
        "remarks": ", ".join(remarks(entry)),
    }


def summary_cells(one: Summary) -> dict[str, str]:
    """An author's figures as text by column; an absent one is empty."""
    ranked = one.rank is not None
    return {
        "rank": shown_rank(one.rank, one.tied),
        "author": one.author,
        "device": one.device_name,
        "ranked": str(one.problems),
        "tried": str(one.tried),
        "problems": str(one.of),
        "geometric mean": _times(one.geometric_mean_speedup if ranked else None),
        "at least": _times(one.geometric_mean_ci_low if ranked else None),
        **{f"fast_{p}": f"{share:.0%}" for p, share in one.fast_p.items()},
        **{f"pass@{k}": "" if chance is None else f"{chance:.0%}" for k, chance in one.pass_at_k.items()},
    }


def _entries(board: Leaderboard) -> Table:
    """The board of one device, which the title names; without the columns of which nothing is known."""
    rows = list(map(entry_cells, board.entries))
    known = {column for cells in rows for column, cell in cells.items() if cell}
    columns = [one for one in COLUMNS if one != "device" and (one in known or one not in MAY_BE_UNKNOWN)]
    table = plain_table(*columns)
    over = ", over the faster of torch.compile's modes" if board.against == "compile" else ""
    device = one_line(board.entries[0].device_name)
    table.title = f"{board.board} board on {device}{over}, ranked by the lower end of the 95% interval"
    for entry, cells in zip(board.entries, rows, strict=True):
        styles = {"status": style_of(entry.status)}
        table.add_row(*(Text(one_line(cells[column]), style=styles.get(column, "")) for column in columns))
    return table


def _summaries(board: Leaderboard) -> Table:
    """The authors on one device, which the title names."""
    rows = [summary_cells(one) for one in board.summaries]
    for cells in rows:
        del cells["device"]
    table = plain_table(*rows[0])
    table.title = f"on {one_line(board.summaries[0].device_name)}"
    for cells in rows:
        table.add_row(*map(one_line, cells.values()))
    return table


def _times(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.3f}x"
