"""`grader problems`: list, check, add, remove."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from grader.catalog.problems import Catalog, find_problems
from grader.catalog.remembered_folders import forget, registry, remember
from grader.cli._catalog import offered, to_check
from grader.cli._options import ListFormatOption, ProblemFolders, ShortForJson, takes_grader_options
from grader.errors import UserError, printable
from grader.options import GraderOptions
from grader.report.listing import ListFormat, print_listing

app = typer.Typer(rich_markup_mode=None)

_Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder with problems, or a checkout of KernelBench or GPU MODE's.")
]


@app.callback(invoke_without_command=True)
def list_problems(
    context: typer.Context,
    problems: ProblemFolders = None,
    output: ListFormatOption = None,
    as_json: ShortForJson = False,
) -> None:
    """List the problems, and whether they can be graded.

    Shows their variants, what the gradient check leaves out, and why a problem has no forward or backward to grade.

    \b
    Examples:
      grader problems
      grader problems --problems KernelBench/level1 --json
      grader problems --format csv > problems.csv
      grader problems add ~/KernelBench
      grader problems check 23_Softmax
    """
    if context.invoked_subcommand is not None:
        if problems or as_json or output:
            raise UserError(f"put the options after the command: grader problems {context.invoked_subcommand} ...")
        return
    from grader.catalog.known_facts import known_facts
    from grader.report.tables import PROBLEMS

    catalog = _with_skipped_named(offered(problems))
    listed = (known_facts(problem) for problem in catalog.problems.values())
    print_listing(PROBLEMS, listed, ListFormat.JSON if as_json else output)


@app.command()
@takes_grader_options(["sandbox"])
def check(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Problems to check; by default all.")
    ] = None,
    problems: Annotated[
        list[Path] | None,
        typer.Option("--problems", metavar="DIR", help="Check only the problems in this folder; may be repeated."),
    ] = None,
    with_shipped: Annotated[
        bool, typer.Option("--shipped", help="Also check the shipped problems; without --problems, only these.")
    ] = False,
    output: ListFormatOption = None,
    as_json: ShortForJson = False,
    *,
    options: GraderOptions,
) -> None:
    """Run each reference a few times and report which problems cannot be graded, and why.

    Checks the shipped and remembered problems, or with --problems that folder alone.

    does_not_load, does_not_run: the file or the model raises. stochastic: it draws random numbers in train() and
    eval(). no_output, no_float: there is nothing to compare. A problem that a constant output passes can be graded, and
    gets a remark. References run in the sandbox, on the GPU where there is one.

    \b
    Examples:
      grader problems check --problems KernelBench/
      grader problems check 23_Softmax --json | jq .fault
    """
    from grader.grading.problem_check import Checker
    from grader.report.tables import CHECKS

    catalog = _with_skipped_named(to_check(problems, with_shipped=with_shipped))
    chosen = [catalog.problem(one) for one in ids or ()] or list(catalog.problems.values())
    with Checker(sandbox=options.sandbox) as checker:
        lefts = reversed(range(len(chosen)))
        checks = (checker.check(one, more_to_come=left > 0) for left, one in zip(lefts, chosen, strict=True))
        print_listing(CHECKS, checks, ListFormat.JSON if as_json else output)


@app.command()
def add(folder: _Folder) -> None:
    """Remember a folder: later commands offer its problems without --problems.

    \b
    Example:
      grader problems add ~/KernelBench
    """
    added = len(find_problems([folder]).problems) - len(find_problems().problems)
    news = "remembered" if remember(folder) else "remembered already"
    print(f"{printable(folder.resolve())}: {news} in {registry()}; {added} more problems with it", file=sys.stderr)


@app.command()
def remove(folder: _Folder) -> None:
    """Forget a folder that `add` remembered. The folder itself is left alone and need not exist.

    \b
    Example:
      grader problems remove ~/KernelBench
    """
    forget(folder)


def _with_skipped_named(catalog: Catalog) -> Catalog:
    """The catalog, unchanged; files in it that are not problems are listed on stderr."""
    for one in catalog.skipped:
        print(f"skipped {one}", file=sys.stderr)
    return catalog
