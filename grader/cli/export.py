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

from db.choice import Choice, Chosen, chosen
from db.read_only import open_to_read
from grader.cli._options import DATABASE, Database
from grader.errors import UserError
from grader.report.console import one_line
from grader.report.export.flat import require_pyarrow, verdicts_csv, write_parquet
from grader.report.export.kernelbench import eval_results
from grader.report.json_csv import json_line
from grader.verdict.models import Status, Verdict


class ExportFormat(StrEnum):
    """Formats of `grader export`."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    KERNELBENCH = "kernelbench"


def export(
    output: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="jsonl: verdicts in full, as `grade --json` prints them. csv, parquet: one flat row per verdict. "
            "kernelbench: eval_results.json, as KernelBench's scripts read it.",
        ),
    ] = ExportFormat.JSONL,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file instead of stdout.")] = None,
    db: Database = DATABASE,
    author: Annotated[str | None, typer.Option(metavar="NAME", help="Only verdicts for this author.")] = None,
    problem: Annotated[str | None, typer.Option(metavar="ID", help="Only verdicts for this problem.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only verdicts with this status.")] = None,
    level: Annotated[
        int | None, typer.Option(metavar="N", help="kernelbench: only this level; a file holds one level.")
    ] = None,
) -> None:
    """Write stored verdicts for other programs.

    kernelbench writes one author's newest verdicts on one level. KernelBench compares the forward alone: `correctness`
    says that the forward matches, even if the backward is missing or wrong, which `metadata` records; `runtime` is the
    forward's time in milliseconds.

    \b
    Examples:
      grader export > verdicts.jsonl
      grader export --format csv --status missing_backward | cut -d, -f3,4,10
      grader export --format parquet --out verdicts.parquet
      grader export --format kernelbench --author my_run --level 1 --out KernelBench/runs/my_run/eval_results.json
    """
    if level is not None and output is not ExportFormat.KERNELBENCH:
        raise UserError("--level is for --format kernelbench; use --problem with the other formats")
    if output is ExportFormat.PARQUET:
        require_pyarrow()
        if out is None and sys.stdout.isatty():
            raise UserError("Parquet is not text; add --out FILE, or redirect the output")
    choice = Choice(author=author, problem=problem, status=status)
    with open_to_read(db) as store:
        found = _counted(chosen(store, choice), choice)
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
                csv = output is ExportFormat.CSV
                for line in verdicts_csv(verdicts) if csv else (f"{json_line(one)}\n" for one in verdicts):
                    file.write(line.encode())


def _counted(found: Iterable[Chosen], choice: Choice) -> Iterator[Chosen]:
    """The verdicts, unchanged; prints a line on stderr at the end if there were none."""
    count = 0
    for count, one in enumerate(found, start=1):  # noqa: B007
        yield one
    if not count:
        options = [f"--{name} {value}" for name, value in vars(choice).items() if value is not None]
        print(f"no verdict matches {one_line(' '.join(options))}" if options else "no verdicts yet", file=sys.stderr)


def _kernelbench(found: Iterable[Chosen], level: int | None) -> str:
    made = eval_results(found, level)
    if made.left_out:
        print(
            f"{made.left_out} verdicts are left out: not on a KernelBench problem, on one variant only, not run, or "
            "grader errors",
            file=sys.stderr,
        )
    if made.untimed:
        print(
            f"{made.untimed} results are correct and have no runtime (-1): leave them out of means",
            file=sys.stderr,
        )
    return json.dumps(made.results, indent=4) + "\n"


def _readable(found: Iterable[Chosen]) -> Iterator[Verdict]:
    """The verdicts that this version can read; prints the number of others on stderr at the end."""
    unreadable = 0
    for one in found:
        if one.verdict is None:
            unreadable += 1
        else:
            yield one.verdict
    if unreadable:
        print(f"{unreadable} verdicts written by another version of the grader are left out", file=sys.stderr)


@contextmanager
def _opened(out: Path | None) -> Iterator[BinaryIO]:
    """The file, or stdout. Raises UserError if it cannot be written."""
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
