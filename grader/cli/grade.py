"""`grader grade`."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from db import Claims, Keeper, Store
from grader.api import Grader, open_grader
from grader.batch import Batch
from grader.catalog.formats.kernelbench import samples_of_run
from grader.catalog.problems import Catalog
from grader.catalog.requests import Pair, RequestReader
from grader.catalog.submissions import find_submissions
from grader.cli._catalog import offered
from grader.cli._lines import STDIN, arriving, count_lines, reader_of_lines
from grader.cli._options import DATABASE, Database, ProblemFolders, takes_grader_options
from grader.errors import UserError, printable
from grader.options import COMMAND_LINE_OPTIONS, GraderOptions
from grader.report.progress import BatchProgress
from grader.report.text import tally
from grader.verdict.models import Problem, Status

if TYPE_CHECKING:
    from grader.pool import GraderPool


@takes_grader_options(COMMAND_LINE_OPTIONS)
def grade(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help="Submissions, folders that are searched for them, JSONL batches (*.jsonl), or - for JSONL on stdin.",
        ),
    ] = None,
    problem_id: Annotated[
        str | None,
        typer.Option("--problem", metavar="ID|FILE", help="Grade for this problem, not the one in the file name."),
    ] = None,
    author: Annotated[
        str | None, typer.Option(metavar="NAME", help="Store the verdicts under this author, not the folder's name.")
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
    db: Database = DATABASE,
    regrade: Annotated[bool, typer.Option("--regrade", help="Grade again even if the database has a verdict.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per verdict.")] = False,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="all|N,...",
            help="Grade on several GPUs, a process for each: all, or indices and UUIDs among those that "
            "CUDA_VISIBLE_DEVICES shows.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Grade on the CPU with N processes; one of them times at a time.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="auto|ADDRESS", help="Grade on a Ray cluster: on its GPUs, or --workers on its CPUs."),
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            metavar="N", help="Wait while a grader with a higher priority on this machine uses the same database."
        ),
    ] = 0,
    *,
    options: GraderOptions,
) -> None:
    """Grade submissions: Python files with a class ModelNew.

    The file name <author>/<problem_id>.py or <author>/<problem_id>__<label>.py names the problem; --problem overrides
    it. A submission that was graded before, with the same source, problem, machine and settings, is shown from the
    database. Each verdict is stored as soon as it is reached: after an interruption, run the same command to continue.

    A line of JSONL is {"problem": ID, "source": TEXT} and may have author, label and sample. Each is graded when it
    arrives. A line that cannot be graded is named on stderr, does not stop the others, and makes the exit status 2.

    \b
    Examples:
      grader grade submissions/
      grader grade submissions/ann/conv2d_mul_leaky_relu_gelu__v2.py --device cuda
      grader grade my_kernel.py --problem conv2d_mul_leaky_relu_gelu --quick
      grader grade my_kernel.py --problem KernelBench/KernelBench/level1/19_ReLU.py
      grader grade --kernelbench-run KernelBench/runs/my_run --problems KernelBench/
      generate | grader grade - --json > verdicts.jsonl
    """
    catalog = offered(problems)
    if problem_id is not None:
        problem = catalog.named(problem_id)
        catalog, problem_id = catalog.including(problem), problem.id
    check_variant = _variant_check(options.variant)
    files, streams = _files_and_streams(paths or (), kernelbench_run)
    pairs, refused = _pairs(files, catalog, problem_id, author, check_variant)
    if refused and not pairs and not streams:
        for message in refused:
            _warn(message)
        raise typer.Exit(2)
    lines = count_lines(streams)
    overrides = {key: value for key, value in (("problem", problem_id), ("author", author)) if value is not None}
    cancels = _Cancels()
    with (
        Store.open(db) as store,
        store.run(sys.argv[1:], _warn) as run,
        BatchProgress(total=None if lines is None else lines + len(pairs) + len(refused), as_json=as_json) as progress,
        _opened(options, gpus, workers, ray, progress.warn) as grader,
        Claims(store, run, progress.warn, priority=priority, status=progress.work, cancelled=cancels.put) as claims,
    ):
        progress.reached.places = getattr(grader, "places", tuple)
        keeper = Keeper(store, run, progress.warn)
        if taken_over := keeper.take_over():
            progress.warn(f"saved {taken_over} of an earlier run's verdicts, which the database could not take")
        batch = Batch[None](grader, store, keeper, claims, progress, regrade=regrade)
        cancels.begin(batch, progress.warn)
        for message in refused:
            progress.refuse(message)
        read = reader_of_lines(RequestReader(catalog, options), overrides, check_variant, progress.refuse)
        arrived = (some for stream in streams for some in arriving(stream, read))
        _grade_all(grader, batch, chain([pairs], arrived), progress.warn)
    counts = {"reused": batch.reused, "copied": batch.copied, "cancelled": batch.dropped}
    print(tally(batch.statuses, **counts), file=sys.stderr)
    if progress.refused:
        raise typer.Exit(2)
    if batch.statuses[Status.GRADER_ERROR]:
        raise typer.Exit(1)


class _Cancels:
    """Carries out requests of `grader cancel`, also those that arrive before the batch exists."""

    def __init__(self) -> None:
        self._early: list[str | None] = []
        self._batch: Batch[None] | None = None
        self._say: Callable[[str], None] = lambda _: None

    def begin(self, batch: Batch[None], say: Callable[[str], None]) -> None:
        """Apply requests to this batch from now on; `say` prints a line for the user."""
        self._batch, self._say = batch, say
        while self._early:
            self.put(self._early.pop(0))

    def put(self, author: str | None) -> None:
        """End what the author has; None: the whole run."""
        if self._batch is None:
            self._early.append(author)
        elif author is None:
            self._say("cancelled by `grader cancel`")
            os.kill(os.getpid(), signal.SIGTERM)  # a shell has its background jobs ignore SIGINT
        else:
            self._batch.cancel_author(author)


def _warn(message: str) -> None:
    """Print a line on stderr, while there is no progress bar."""
    print(f"grader: {printable(message)}", file=sys.stderr)


def _grade_all(
    grader: Grader | GraderPool,
    batch: Batch[None],
    arrivals: Iterable[Iterable[Pair]],
    warn: Callable[[str], None],
) -> None:
    """Grade pairs as they arrive; if interrupted, say how to continue."""
    try:
        # A pool waits for lines in a thread of its own, while it grades those before.
        for some in [chain.from_iterable(arrivals)] if grader.waits_apart else arrivals:
            batch.grade((pair, None) for pair in some)
        batch.finish()
    except (KeyboardInterrupt, SystemExit):
        count = batch.statuses.total()
        kept = "1 verdict" if count == 1 else f"{count} verdicts"
        with suppress(OSError):  # a terminal that hung up
            warn(f"interrupted; {kept} kept; run the same command to continue")
        raise


def _opened(
    options: GraderOptions, gpus: str | None, workers: int | None, ray: str | None, say: Callable[[str], None]
) -> Grader | GraderPool:
    """A pool if several devices or processes were asked for, else a single grader."""
    if gpus is None and workers is None and ray is None:
        return open_grader(options)
    from grader.pool import GraderPool

    return GraderPool(options, gpus=gpus, workers=workers, ray=ray, say=say)


def _files_and_streams(paths: Sequence[Path], kernelbench_run: Path | None) -> tuple[list[Path], list[Path]]:
    """(files and folders, streams of JSONL). Raises UserError for a missing stream, and if both are empty."""
    if not paths and kernelbench_run is None:
        raise UserError("nothing to grade; name files, folders, a .jsonl, - for stdin, or --kernelbench-run DIR")
    streams = [path for path in paths if path == STDIN or (path.suffix == ".jsonl" and not path.is_dir())]
    for path in streams:
        if path != STDIN and not path.exists():
            raise UserError(f"{path}: no such file or folder")
    files = [path for path in paths if path not in streams]
    return files + (samples_of_run(kernelbench_run) if kernelbench_run else []), streams


def _pairs(
    files: Iterable[Path],
    catalog: Catalog,
    problem_id: str | None,
    author: str | None,
    check_variant: Callable[[Problem], None],
) -> tuple[list[Pair], list[str]]:
    """The pairs that can be graded, and a message for each file or problem that cannot."""
    found = find_submissions(files, catalog, problem_id=problem_id, author=author)
    pairs, unusable = [], Counter[str]()
    for submission in found.submissions:
        problem = catalog.problem(submission.problem_id)
        try:
            check_variant(problem)
        except UserError as error:
            unusable[str(error)] += 1
        else:
            pairs.append((problem, submission))
    refused = [f"{message} (files for it: {count})" for message, count in unusable.items()]
    return pairs, [*map(str, found.refused), *refused]


def _variant_check(variant: str | None) -> Callable[[Problem], None]:
    """Raises UserError for a problem that does not have the variant. Loads each problem once."""

    @cache
    def check(problem: Problem) -> None:
        if variant is None:
            return
        from grader.catalog.problem_module import load_problem

        names = load_problem(problem).variants
        if variant not in names:
            raise UserError(f"problem {problem.id} has no variant {variant!r}; it has {', '.join(names)}")

    return check
