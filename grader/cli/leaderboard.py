"""`grader leaderboard`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from db.leaderboard import Leaderboard, leaderboard
from db.read_only import open_to_read
from grader.catalog.own_folders import shipped
from grader.cli._board_options import Everything, Having, Languages, OfPrecision, Without, label_choice
from grader.cli._options import DATABASE, AgainstChoice, AnyDevice, BoardChoice, Database, Format, device_of
from grader.errors import UserError
from grader.options import AUTO
from grader.report.boards import (
    leaderboard_csv,
    leaderboard_json,
    leaderboard_markdown,
    leaderboard_plain,
    leaderboard_table,
    left_out_line,
)
from grader.report.console import console
from grader.verdict.precision import Precision

_MOST_NAMED = 20


def show_leaderboard(
    problem: Annotated[str | None, typer.Option("--problem", metavar="ID", help="Only this problem.")] = None,
    board: Annotated[
        BoardChoice,
        typer.Option(
            help="total: forward and backward together, correct submissions. forward: every correct forward. "
            "strict-fp32: like total, graded with --strict-fp32. cpu: like total, CPUs only."
        ),
    ] = BoardChoice.TOTAL,
    device: AnyDevice = AUTO,
    having: Having = None,
    without: Without = None,
    language: Languages = None,
    everything: Everything = False,
    precision: OfPrecision = Precision.FP32,
    against: Annotated[
        AgainstChoice,
        typer.Option(
            help="What speedups, ranks and means are over: eager PyTorch, or the faster of torch.compile's modes."
        ),
    ] = AgainstChoice.EAGER,
    pass_at: Annotated[
        str | None,
        typer.Option("--pass-at", metavar="K,...", help="Also show pass@k by author, over samples of one problem."),
    ] = None,
    output: Annotated[
        Format | None,
        typer.Option("--format", help="By default a table on a terminal, else plain: cells between tabs."),
    ] = None,
    db: Database = DATABASE,
) -> None:
    """Rank stored verdicts by speedup, and their authors.

    The lower end of the speedup's 95% interval ranks. Only the newest verdict for a source counts, and an author's
    best source under one label; --having and --without select among these. Copies of the reference
    (wraps_reference) are left out. Each device has its own board. Submissions whose interval overlaps the leader's
    lower bound share its rank (=). A speedup more than 10% above the roofline bound is not ranked. Authors rank by
    the geometric mean of their speedups over all problems of the board; a problem without a ranked submission
    counts as 1.0.

    \b
    Examples:
      grader leaderboard
      grader leaderboard --problem conv2d_mul_leaky_relu_gelu --board forward
      grader leaderboard --without no_custom_kernel --without vendor_library
      grader leaderboard --against compile
      grader leaderboard --all
      grader leaderboard --pass-at 1,5,10 --format json | jq .summaries
      grader leaderboard --format md >> README.md
    """
    with open_to_read(db) as store:
        if problem is not None:
            _require(problem, store.problems())
        found = leaderboard(
            store,
            board=board.value,
            problem=problem,
            device=device_of(device),
            labels=label_choice(having, without, language, everything, precision),
            pass_at=_counts(pass_at),
            against=against.value,
        )
    _print(found, output)


def _print(found: Leaderboard, output: Format | None) -> None:
    if output is Format.TABLE or (output is None and sys.stdout.isatty()):
        console().print(leaderboard_table(found))
        return
    if output is Format.CSV and (left_out := left_out_line(found)):
        print(left_out, file=sys.stderr)
    forms = {
        Format.PLAIN: leaderboard_plain,
        Format.JSON: leaderboard_json,
        Format.CSV: leaderboard_csv,
        Format.MD: leaderboard_markdown,
    }
    print(forms[output or Format.PLAIN](found))


def _require(problem: str, graded: list[str]) -> None:
    """Raise UserError for an unknown problem; a shipped one may have no verdict yet."""
    if graded and problem not in graded and not (shipped("problems") / f"{problem}.py").is_file():
        some = ", ".join(graded[:_MOST_NAMED]) + (" ..." if len(graded) > _MOST_NAMED else "")
        raise UserError(f"no verdict on problem {problem!r}; there are verdicts on {some}")


def _counts(text: str | None) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        found = [0]
    if any(k < 1 for k in found):
        raise UserError(f"--pass-at {text}: write whole numbers above 0, such as 1,5,10")
    return found
