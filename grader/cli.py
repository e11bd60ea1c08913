"""The command line. Verdicts and tables go to stdout, everything else to stderr.

Exit status: 0 when everything asked for was done, whatever the verdicts say; 1 when the grader itself failed on
something; 2 for a request that cannot be carried out; 130 after Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from db import Store
from db.leaderboard import Board, leaderboard
from grader import __version__
from grader.catalog import Catalog, find_problems, find_submissions
from grader.cli_serve import serve
from grader.errors import GraderError, UserError
from grader.models import Device, Problem, Status, Submission, Verdict
from grader.report.console import console
from grader.report.machine import json_line, leaderboard_csv, leaderboard_json
from grader.report.progress import BatchProgress
from grader.report.text import leaderboard_table, tally, verdict_in_full

if TYPE_CHECKING:
    from grader.pipeline import Grader

app = typer.Typer(
    name="grader",
    help="Grade GPU kernels that nobody has read yet: does it build, does the forward match, does the backward match, "
    "how fast is it?",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
)

DATABASE = "grader.db"

ProblemFolders = Annotated[
    list[Path] | None,
    typer.Option("--problems", metavar="DIR", help="Also offer the problems in this folder; may be repeated."),
]
Database = Annotated[str, typer.Option("--db", metavar="PATH|URL", help="Where verdicts are kept.")]


class DeviceChoice(StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class SandboxChoice(StrEnum):
    AUTO = "auto"
    BUBBLEWRAP = "bubblewrap"
    WEAK = "weak"


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class BoardChoice(StrEnum):
    TOTAL = "total"
    FORWARD = "forward"


def main() -> None:
    """Run the command line and exit."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except GraderError as error:
        print(f"grader: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def grade(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, or folders that are searched for them.")
    ],
    problem_id: Annotated[
        str | None, typer.Option("--problem", metavar="ID", help="Grade for this problem, whatever the file is called.")
    ] = None,
    problems: ProblemFolders = None,
    device: Annotated[
        DeviceChoice, typer.Option(help="auto: what the submission was written for.")
    ] = DeviceChoice.AUTO,
    db: Database = DATABASE,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this variant; such verdicts are not ranked.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds of correctness and timing.")] = False,
    regrade: Annotated[bool, typer.Option("--regrade", help="Grade again what the database knows already.")] = False,
    sandbox: Annotated[
        SandboxChoice, typer.Option(help="weak: without bubblewrap; the verdict says so.")
    ] = SandboxChoice.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a verdict on stdout.")] = False,
) -> None:
    """Grade submissions: Python files with a class ModelNew.

    <author>/<problem_id>.py or <author>/<problem_id>__<label>.py names its problem; --problem overrides that. What is
    already graded, with the same text, problem, machine and settings, is shown from the database. Each verdict is kept
    as it is reached: after an interruption the same command goes on where it stopped.

    \b
    Examples:
      grader grade submissions/
      grader grade submissions/ann/conv2d_mul_leaky_relu_gelu__v2.py --device cuda
      grader grade my_kernel.py --problem conv2d_mul_leaky_relu_gelu --quick
      grader grade runs/ --problems KernelBench/ --json > verdicts.jsonl
    """
    catalog = find_problems(problems or ())
    submissions = find_submissions(paths, catalog, problem_id=problem_id)
    _check_variant(variant, catalog, submissions)
    batch = [(catalog.problem(submission.problem_id), submission) for submission in submissions]
    with (
        Store.open(db) as store,
        store.run(sys.argv[1:]) as run,
        open_grader(device=device.value, sandbox=sandbox.value, quick=quick, variant=variant) as grader,
    ):
        known = {} if regrade else _known(batch, store, grader)
        verdicts: list[Verdict] = []
        with BatchProgress(total=len(batch), as_json=as_json) as progress:
            for verdict in known.values():
                progress.show(verdict)
                verdicts.append(verdict)
            todo = [pair for index, pair in enumerate(batch) if index not in known]
            for problem, submission, reached in grader.grade_many(todo):
                saved = store.save(reached, submission, problem, run)
                progress.show(saved)
                verdicts.append(saved)
    print(tally(verdicts, reused=len(known)), file=sys.stderr)
    if any(verdict.status is Status.GRADER_ERROR for verdict in verdicts):
        raise typer.Exit(1)


@app.command()
def show(
    verdict_id: Annotated[int, typer.Argument(metavar="ID", help="A verdict's number, as `grade` prints it.")],
    db: Database = DATABASE,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as one JSON object.")] = False,
) -> None:
    """Show a verdict in full: diagnosis, gradients, build log, timing, environment, source.

    \b
    Examples:
      grader show 12
      grader show 12 --json | jq .diagnoses
    """
    with Store.open(db, must_exist=True) as store:
        stored = store.get(verdict_id)
    if as_json:
        print(json_line(stored.verdict))
    else:
        console().print(verdict_in_full(stored))


@app.command(name="leaderboard")
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
        found = leaderboard(store, board=_board(board), problem=problem, device=_device(device))
    if output is Format.TABLE:
        console().print(leaderboard_table(found))
    else:
        print(leaderboard_json(found) if output is Format.JSON else leaderboard_csv(found))


@app.command()
def report(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="An empty or new folder, or an earlier report.")],
    db: Database = DATABASE,
) -> None:
    """Write a static site of all verdicts: status, leaderboards, fast_p, speedups, one page a verdict.

    It needs no server and no network: open index.html, or publish the folder as it is.

    \b
    Examples:
      grader report --out report/
      grader report --out report/ --db runs/grader.db
    """
    from grader.report.site import write_site

    with Store.open(db, must_exist=True) as store:
        written = write_site(store, out)
    if written.unreadable:
        print(f"{written.unreadable} verdicts of another version of the grader are shown in short", file=sys.stderr)
    print(f"{written.pages} pages, begin with {written.index}")


app.command()(serve)


@app.command(name="problems")
def list_problems(
    problems: ProblemFolders = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a problem.")] = False,
) -> None:
    """List the problems: their variants, what of each is gradable, and what not and why.

    \b
    Examples:
      grader problems
      grader problems --problems KernelBench/level1 --json
    """
    from grader.gradable import facts
    from grader.report.tables import problems_table, skipped_lines

    catalog = find_problems(problems or ())
    for line in skipped_lines(catalog.skipped):
        print(line, file=sys.stderr)
    found = (facts(problem) for problem in catalog.problems.values())
    if as_json:
        for one in found:
            print(json_line(one))
    else:
        console().print(problems_table(found))


@app.command()
def doctor() -> None:
    """Tell what this machine offers: GPUs, nvcc, compiler, torch, each layer of the sandbox.

    Exits with 1 when submissions cannot be isolated here.

    \b
    Example:
      grader doctor
    """
    from grader.doctor import can_isolate, examine
    from grader.report.tables import findings_table

    findings = list(examine())
    console().print(findings_table(findings))
    if not can_isolate(findings):
        raise typer.Exit(1)


def open_grader(
    *,
    device: Literal["auto", "cpu", "cuda"],
    sandbox: Literal["auto", "bubblewrap", "weak"],
    quick: bool,
    variant: str | None,
) -> Grader:
    """The real one, imported only when something is graded: it needs torch, which takes seconds to import."""
    from grader.pipeline import Grader

    return Grader(device=device, sandbox=sandbox, quick=quick, variant=variant)


def _known(batch: Iterable[tuple[Problem, Submission]], store: Store, grader: Grader) -> dict[int, Verdict]:
    """Stored verdicts that still hold, by position in the batch."""
    found = (
        store.find(submission, problem, grader.environment_for(submission), grader.settings_for(submission))
        for problem, submission in batch
    )
    return {index: verdict for index, verdict in enumerate(found) if verdict is not None}


def _check_variant(variant: str | None, catalog: Catalog, submissions: Iterable[Submission]) -> None:
    if variant is None:
        return
    from grader.problem_module import load_problem

    for problem_id in sorted({submission.problem_id for submission in submissions}):
        names = load_problem(catalog.problem(problem_id)).variants
        if variant not in names:
            raise UserError(f"problem {problem_id} has no variant {variant!r}; it has {', '.join(names)}")


def _board(choice: BoardChoice) -> Board:
    return "total" if choice is BoardChoice.TOTAL else "forward"


def _device(choice: DeviceChoice) -> Device | None:
    return None if choice is DeviceChoice.AUTO else Device(choice.value)


if __name__ == "__main__":
    main()
