"""`grader leaderboard`."""

from __future__ import annotations

from typing import Annotated

import typer

from db import Store
from db.leaderboard import Board, leaderboard
from grader.cli._options import DATABASE, BoardChoice, Database, DeviceChoice, Format, device_of
from grader.report.console import console
from grader.report.machine import leaderboard_csv, leaderboard_json
from grader.report.text import leaderboard_table


def show_leaderboard(
    problem: Annotated[str | None, typer.Option("--problem", metavar="ID", help="Only this problem.")] = None,
    board: Annotated[
        BoardChoice, typer.Option(help="total: forward and backward, correct ones. forward: every right forward.")
    ] = BoardChoice.TOTAL,
    device: Annotated[DeviceChoice, typer.Option(help="auto: every device.")] = DeviceChoice.AUTO,
    output: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
    db: Database = DATABASE,
) -> None:
    """Rank stored verdicts by the lower end of the speedup's 95% interval.

    Of verdicts on one text the newest counts, of an author's texts under one label the best. Each device is a board of
    its own.

    \b
    Examples:
      grader leaderboard
      grader leaderboard --problem conv2d_mul_leaky_relu_gelu --board forward
      grader leaderboard --format csv > board.csv
    """
    with Store.open(db, must_exist=True) as store:
        found = leaderboard(store, board=_board(board), problem=problem, device=device_of(device))
    if output is Format.TABLE:
        console().print(leaderboard_table(found))
    else:
        print(leaderboard_json(found) if output is Format.JSON else leaderboard_csv(found))


def _board(choice: BoardChoice) -> Board:
    return "total" if choice is BoardChoice.TOTAL else "forward"
