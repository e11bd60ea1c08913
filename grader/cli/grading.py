"""`grader grade`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from db import Run, Store
from grader.catalog.problems_and_submissions import Catalog, find_submissions, kernelbench_samples
from grader.catalog.requests import RequestReader
from grader.cli._catalog import offered
from grader.cli._lines import STDIN, Pair, arriving, readable
from grader.cli._options import DATABASE, Database, DeviceChoice, ProblemFolders, SandboxChoice
from grader.errors import UserError
from grader.report.progress import BatchProgress
from grader.report.text import tally
from grader.verdict.models import Problem, Status, Submission, Verdict

if TYPE_CHECKING:
    from grader.api import Grader


def grade(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Submissions, folders that are searched for them, JSONL batches (*.jsonl), or - for JSONL on stdin.",
        ),
    ] = None,
    problem_id: Annotated[
        str | None, typer.Option("--problem", metavar="ID", help="Grade for this problem, whatever the file is called.")
    ] = None,
    author: Annotated[
        str | None, typer.Option(metavar="NAME", help="Keep the verdicts under this author, whatever the folder says.")
    ] = None,
    kernelbench_run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also grade the level_L_problem_P_sample_S_kernel.py in this folder of a KernelBench run; the folder "
            "is the author.",
        ),
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

    A line of JSONL is {"problem": ID, "source": TEXT} and may have author, label and sample. Each is graded when it
    arrives. One that cannot be graded is named on stderr, does not stop the others, and makes the exit status 2.

    \b
    Examples:
      grader grade submissions/
      grader grade submissions/ann/conv2d_mul_leaky_relu_gelu__v2.py --device cuda
      grader grade my_kernel.py --problem conv2d_mul_leaky_relu_gelu --quick
      grader grade --kernelbench-run KernelBench/runs/my_run --problems KernelBench/
      generate | grader grade - --json > verdicts.jsonl
    """
    catalog = offered(problems)
    check_variant = _variant_check(variant)
    files, streams = _told_apart(paths or (), kernelbench_run)
    batch = _pairs(files, catalog, problem_id, author, check_variant)
    overrides = {key: value for key, value in (("problem", problem_id), ("author", author)) if value is not None}
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
        BatchProgress(total=None if streams else len(batch), as_json=as_json) as progress,
    ):
        oracle = _Desk(grader, store, run, progress, regrade=regrade)
        oracle.grade(batch)
        for stream in streams:
            for name, lines in arriving(stream):
                oracle.grade(readable(lines, name, RequestReader(catalog), overrides, check_variant, oracle.refuse))
    print(tally(oracle.verdicts, reused=oracle.reused), file=sys.stderr)
    if oracle.refused:
        raise typer.Exit(2)
    if any(verdict.status is Status.GRADER_ERROR for verdict in oracle.verdicts):
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
    """The real one, imported only when something is graded: it needs torch, which takes seconds to import. What workers
    are copied from imports it meanwhile."""
    from grader.executor import worker_template
    from grader.machine.allocator import keep_freed_memory
    from grader.sandbox import choose

    keep_freed_memory()
    worker_template.start_ahead(choose(sandbox), device)
    try:
        from grader.api import Grader

        return Grader(
            device=device, sandbox=sandbox, quick=quick, variant=variant, strict_fp32=strict_fp32, baselines=baselines
        )
    finally:
        worker_template.close_ahead()


@dataclass
class _Desk:
    """Where work comes in, and verdicts go out to the database and the screen."""

    grader: Grader
    store: Store
    run: Run
    progress: BatchProgress
    regrade: bool
    verdicts: list[Verdict] = field(default_factory=list)
    reused: int = 0
    refused: int = 0

    def grade(self, work: Iterable[Pair]) -> None:
        asked: deque[Pair] = deque()
        for reached in self.grader.grade_many(self._unknown(work, asked)):
            problem, submission = asked.popleft()
            self._show(self.store.save(reached, submission, problem, self.run))

    def refuse(self, message: str) -> None:
        """Say what cannot be graded; the rest goes on."""
        self.refused += 1
        self.progress.say(f"grader: {message}")

    def _unknown(self, work: Iterable[Pair], asked: deque[Pair]) -> Iterator[Pair]:
        """What has to be graded, also put into `asked`; of the rest the stored verdict is shown."""
        for problem, submission in work:
            known = None if self.regrade else self._stored(problem, submission)
            if known is None:
                asked.append((problem, submission))
                yield problem, submission
            else:
                self.reused += 1
                self._show(known)

    def _stored(self, problem: Problem, submission: Submission) -> Verdict | None:
        environment, settings = self.grader.environment_for(submission), self.grader.settings_for(submission)
        return self.store.find(submission, problem, environment, settings)

    def _show(self, verdict: Verdict) -> None:
        self.progress.show(verdict)
        self.verdicts.append(verdict)


def _told_apart(paths: Sequence[Path], kernelbench_run: Path | None) -> tuple[list[Path], list[Path]]:
    """(files and folders, streams of JSONL)."""
    if not paths and kernelbench_run is None:
        raise UserError("nothing to grade; name files, folders, a .jsonl, - for stdin, or --kernelbench-run DIR")
    streams = [path for path in paths if path == STDIN or (path.suffix == ".jsonl" and not path.is_dir())]
    for path in streams:
        if path != STDIN and not path.exists():
            raise UserError(f"{path}: no such file or folder")
    files = [path for path in paths if path not in streams]
    return files + (kernelbench_samples(kernelbench_run) if kernelbench_run else []), streams


def _pairs(
    files: Iterable[Path],
    catalog: Catalog,
    problem_id: str | None,
    author: str | None,
    check_variant: Callable[[Problem], None],
) -> list[Pair]:
    submissions = find_submissions(files, catalog, problem_id=problem_id, author=author)
    pairs = [(catalog.problem(submission.problem_id), submission) for submission in submissions]
    for problem, _ in pairs:
        check_variant(problem)
    return pairs


def _variant_check(variant: str | None) -> Callable[[Problem], None]:
    """Raises UserError for a problem that does not have the variant; looks at each problem once."""

    @cache
    def check(problem: Problem) -> None:
        if variant is None:
            return
        from grader.catalog.problem_module import load_problem

        names = load_problem(problem).variants
        if variant not in names:
            raise UserError(f"problem {problem.id} has no variant {variant!r}; it has {', '.join(names)}")

    return check
