"""`grader grade`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from db import Store
from grader.catalog import Catalog, find_problems, find_submissions
from grader.cli._options import DATABASE, Database, DeviceChoice, ProblemFolders, SandboxChoice
from grader.errors import UserError
from grader.models import Problem, Status, Submission, Verdict
from grader.report.progress import BatchProgress
from grader.report.text import tally

if TYPE_CHECKING:
    from grader.pipeline import Grader


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
    strict_fp32: Annotated[
        bool, typer.Option("--strict-fp32", help="Time with TensorFloat-32 off on both sides.")
    ] = False,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Also time torch.compile of the reference, default and max-autotune: costs minutes, once for each "
            "problem and machine. Known verdicts need --regrade.",
        ),
    ] = False,
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
        open_grader(
            device=device.value,
            sandbox=sandbox.value,
            quick=quick,
            variant=variant,
            strict_fp32=strict_fp32,
            baselines=baselines,
        ) as grader,
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


def open_grader(
    *,
    device: Literal["auto", "cpu", "cuda"],
    sandbox: Literal["auto", "bubblewrap", "weak"],
    quick: bool,
    variant: str | None,
    strict_fp32: bool = False,
    baselines: bool = False,
) -> Grader:
    """The real one, imported only when something is graded: it needs torch, which takes seconds to import."""
    from grader.pipeline import Grader

    return Grader(
        device=device, sandbox=sandbox, quick=quick, variant=variant, strict_fp32=strict_fp32, baselines=baselines
    )


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
