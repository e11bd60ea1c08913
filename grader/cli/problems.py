"""`grader problems`: list, check, add, remove."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from grader.catalog.problems_and_submissions import Catalog, find_problems
from grader.catalog.remembered_folders import forget, registry, remember
from grader.cli._catalog import offered
from grader.cli._options import ProblemFolders, takes_grader_options
from grader.errors import UserError
from grader.options import GraderOptions
from grader.report.console import clean, console
from grader.verdict.models import Problem

app = typer.Typer(rich_markup_mode=None)

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder with problems, or a KernelBench checkout.")]


@app.callback(invoke_without_command=True)
def list_problems(
    context: typer.Context,
    problems: ProblemFolders = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a problem.")] = False,
) -> None:
    """List the problems: their variants, what of each is gradable, and what not and why.

    \b
    Examples:
      grader problems
      grader problems --problems KernelBench/level1 --json
      grader problems add ~/KernelBench
      grader problems check 23_Softmax
    """
    if context.invoked_subcommand is not None:
        if problems or as_json:
            raise UserError(f"write the options behind the command: grader problems {context.invoked_subcommand} ...")
        return
    from grader.catalog.known_facts import known_facts
    from grader.report.tables import problems_table

    catalog = _catalog(problems)
    found = (known_facts(problem) for problem in catalog.problems.values())
    if as_json:
        for one in found:
            print(one.model_dump_json())
    else:
        console().print(problems_table(found))


@app.command()
@takes_grader_options(["sandbox"])
def check(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Only these; all without any.")] = None,
    problems: ProblemFolders = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a problem on stdout.")] = False,
    *,
    options: GraderOptions,
) -> None:
    """Run each reference a few times and tell which problems cannot be graded, and why.

    does_not_load, does_not_run: the file or the model raises. stochastic: it draws random numbers in train() and
    eval(). independent: the output does not depend on the inputs. constant: an output filled with one number passes.
    no_output, no_float: there is nothing to compare. References run in the sandbox, on the GPU where there is one.

    \b
    Examples:
      grader problems check --problems KernelBench/
      grader problems check 23_Softmax --json | jq .fault
    """
    from grader.grading.problem_check import Checker
    from grader.report.text import problem_check_line

    catalog = _catalog(problems)
    chosen = _chosen(catalog, ids or ())
    with Checker(sandbox=options.sandbox) as checker:
        for left, problem in zip(reversed(range(len(chosen))), chosen, strict=True):
            found = checker.check(problem, more_to_come=left > 0)
            if as_json:
                print(found.model_dump_json(), flush=True)
            else:
                console().print(problem_check_line(found), soft_wrap=True)
                sys.stdout.flush()


@app.command()
def add(folder: _Folder) -> None:
    """Remember a folder, so that every later command offers its problems without --problems.

    \b
    Example:
      grader problems add ~/KernelBench
    """
    offers = len(find_problems([folder]).problems) - len(find_problems().problems)
    news = "remembered" if remember(folder) else "remembered already"
    print(f"{clean(str(folder.resolve()))}: {news} in {registry()}; {offers} more problems with it", file=sys.stderr)


@app.command()
def remove(folder: _Folder) -> None:
    """Forget a folder that `add` remembered. It stays where it is, and need not exist any more.

    \b
    Example:
      grader problems remove ~/KernelBench
    """
    forget(folder)


def _catalog(folders: list[Path] | None) -> Catalog:
    """What is offered; files that are not is told on stderr."""
    from grader.report.tables import skipped_lines

    catalog = offered(folders)
    for line in skipped_lines(catalog.skipped):
        print(line, file=sys.stderr)
    return catalog


def _chosen(catalog: Catalog, ids: list[str] | tuple[str, ...]) -> list[Problem]:
    return [catalog.problem(one) for one in ids] or list(catalog.problems.values())
