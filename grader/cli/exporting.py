"""`grader export`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from db import Store
from grader.cli._options import DATABASE, Database
from grader.errors import UserError
from grader.report.export import Choice, Chosen, chosen, csv_lines, eval_results, require_pyarrow, write_parquet
from grader.report.machine import json_line
from grader.verdict.models import Status, Verdict


class ExportFormat(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    KERNELBENCH = "kernelbench"


def export(
    output: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="jsonl: verdicts in full, as `grade --json` prints them. csv, parquet: one flat row a verdict. "
            "kernelbench: eval_results.json, as KernelBench's scripts read it.",
        ),
    ] = ExportFormat.JSONL,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there instead of to stdout.")] = None,
    db: Database = DATABASE,
    author: Annotated[str | None, typer.Option(metavar="NAME", help="Only this author's.")] = None,
    problem: Annotated[str | None, typer.Option(metavar="ID", help="Only on this problem.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only with this status.")] = None,
    level: Annotated[
        int | None, typer.Option(metavar="N", help="kernelbench: only this level; the file holds one.")
    ] = None,
) -> None:
    """Hand stored verdicts to other programs.

    kernelbench writes one author's newest verdicts on one level. KernelBench compares the forward alone: `correctness`
    there says that the forward matches, even where the backward is missing or wrong, which `metadata` tells; `runtime`
    is the forward's in milliseconds.

    \b
    Examples:
      grader export > verdicts.jsonl
      grader export --format csv --status missing_backward | cut -d, -f3,4,10
      grader export --format parquet --out verdicts.parquet
      grader export --format kernelbench --author my_run --level 1 --out KernelBench/runs/my_run/eval_results.json
    """
    if level is not None and output is not ExportFormat.KERNELBENCH:
        raise UserError("--level is for --format kernelbench; --problem chooses in the others")
    if output is ExportFormat.PARQUET:
        require_pyarrow()
        if out is None and sys.stdout.isatty():
            raise UserError("Parquet is no text for a terminal; add --out FILE, or redirect it")
    with Store.open(db, must_exist=True) as store:
        found = chosen(store, Choice(author=author, problem=problem, status=status))
        if output is ExportFormat.KERNELBENCH:
            text = _kernelbench(found, level)
            with _opened(out) as file:
                file.write(text.encode())
            return
        verdicts = _readable(found)
        with _opened(out) as file:
            if output is ExportFormat.PARQUET:
                write_parquet(verdicts, file)
            else:
                lines = csv_lines(verdicts) if output is ExportFormat.CSV else (f"{json_line(v)}\n" for v in verdicts)
                for line in lines:
                    file.write(line.encode())


def _kernelbench(found: Iterable[Chosen], level: int | None) -> str:
    made = eval_results(found, level)
    if made.left_out:
        print(
            f"{made.left_out} verdicts are left out: not on a problem of KernelBench, on one variant only, "
            "not run, or failures of the grader's own",
            file=sys.stderr,
        )
    if made.untimed:
        print(
            f"{made.untimed} results are correct and have no runtime (-1): leave them out before taking means",
            file=sys.stderr,
        )
    return json.dumps(made.results, indent=4) + "\n"


def _readable(found: Iterable[Chosen]) -> Iterator[Verdict]:
    """What this version can read; how many it cannot is told at the end."""
    unreadable = 0
    for one in found:
        if one.verdict is None:
            unreadable += 1
        else:
            yield one.verdict
    if unreadable:
        print(f"{unreadable} verdicts of another version of the grader are left out", file=sys.stderr)


@contextmanager
def _opened(out: Path | None) -> Iterator[BinaryIO]:
    """The file, or stdout. Raises UserError where it cannot be written."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    try:
        file = out.open("wb")
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror}); check the folder and its permissions") from error
    with file:
        yield file
