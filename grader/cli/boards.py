"""`grader leaderboard`."""

from __future__ import annotations

from typing import Annotated

import typer

from db import Store
from db.leaderboard import Leaderboard, leaderboard
from grader.catalog.shipped import shipped
from grader.cli._options import DATABASE, AnyDevice, BoardChoice, Database, Format, device_of
from grader.errors import UserError
from grader.options import AUTO
from grader.report.boards import leaderboard_table
from grader.report.console import console
from grader.report.machine import leaderboard_csv, leaderboard_json
from grader.report.markdown import leaderboard_markdown
from grader.verdict.labels import LABELS

_MOST_NAMED = 20
_LABELS = f"one of {', '.join(sorted(LABELS))}; may be repeated"


def show_leaderboard(
    problem: Annotated[str | None, typer.Option("--problem", metavar="ID", help="Only this problem.")] = None,
    board: Annotated[
        BoardChoice,
        typer.Option(
            help="total: forward and backward, correct ones. forward: every right forward. strict-fp32: as total, "
            "graded with --strict-fp32. cpu: as total, CPUs only."
        ),
    ] = BoardChoice.TOTAL,
    device: AnyDevice = AUTO,
    having: Annotated[
        list[str] | None, typer.Option("--having", metavar="LABEL", help=f"Only what has this label: {_LABELS}.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="LABEL", help="Leave out what has this label; may be repeated."),
    ] = None,
    pass_at: Annotated[
        str | None,
        typer.Option("--pass-at", metavar="K,...", help="Also pass@k by author, over several samples of one problem."),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
    db: Database = DATABASE,
) -> None:
    """Rank stored verdicts by the lower end of the speedup's 95% interval.

    Of verdicts on one text the newest counts, of an author's texts under one label the best; --having and --without
    choose among what counts. Each device is a board of its own. Whose interval reaches the lower end of the first of a
    rank shares it (=). More than 10% above the speed of light is not ranked.

    \b
    Examples:
      grader leaderboard
      grader leaderboard --problem conv2d_mul_leaky_relu_gelu --board forward
      grader leaderboard --without no_custom_kernel --without wraps_reference
      grader leaderboard --pass-at 1,5,10 --format json | jq .summaries
      grader leaderboard --format md >> README.md
    """
    with Store.open(db, must_exist=True) as store:
        if problem is not None:
            _require(problem, store.problems())
        found = leaderboard(
            store,
            board=board.value,
            problem=problem,
            device=device_of(device),
            with_labels=_known(having),
            without_labels=_known(without),
            pass_at=_counts(pass_at),
        )
    _print(found, output)


def _print(found: Leaderboard, output: Format) -> None:
    if output is Format.TABLE:
        console().print(leaderboard_table(found))
        return
    forms = {Format.JSON: leaderboard_json, Format.CSV: leaderboard_csv, Format.MD: leaderboard_markdown}
    print(forms[output](found))


def _require(problem: str, graded: list[str]) -> None:
    """One that ships may have no verdict yet."""
    if graded and problem not in graded and not (shipped("problems") / f"{problem}.py").is_file():
        some = ", ".join(graded[:_MOST_NAMED]) + (" ..." if len(graded) > _MOST_NAMED else "")
        raise UserError(f"there is no verdict on problem {problem!r}; there are verdicts on {some}")


def _known(names: list[str] | None) -> list[str]:
    for name in names or []:
        if name not in LABELS:
            raise UserError(f"there is no label {name!r}; there are {', '.join(sorted(LABELS))}")
    return names or []


def _counts(text: str | None) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        found = [0]
    if any(k < 1 for k in found):
        raise UserError(f"--pass-at {text}: name whole numbers above 0, such as 1,5,10")
    return found
