"""Grading from Python: one submission, many with warm workers, or many beside other work of an event loop.

Importing this module does not import torch; making a `Grader` does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from grader.catalog import Catalog, find_problems, find_submissions
from grader.errors import UserError
from grader.models import Environment, Problem, Settings, Submission, TimeLimits, Verdict

Work = Submission | Mapping[str, object] | tuple[str | Path | Problem, str | Path | Submission]
"""One thing to grade:

- `(problem, source)`: the problem as an id, a file or a `Problem`; the source as text, as the `Path` of a file, or as a
  `Submission`;
- a mapping with `problem` and `source`, and where known `author`, `label` and `sample`: a line of a JSONL batch;
- a `Submission`, whose `problem_id` names the problem.
"""

DeviceChoice = Literal["auto", "cpu", "cuda"]
SandboxChoice = Literal["auto", "bubblewrap", "weak"]

NOBODY = "unknown"
"""The author of a text that came without one."""
_KEYS = {"problem", "source", "author", "label", "sample"}


def grade(
    path: str | Path | None = None,
    *,
    source: str | None = None,
    problem: str | Path | Problem | None = None,
    problems: Iterable[str | Path] = (),
    device: DeviceChoice = "auto",
    sandbox: SandboxChoice = "auto",
    quick: bool = False,
    variant: str | None = None,
) -> Verdict:
    """Grade one submission: a file, or its text.

        grade("ann/conv2d_mul_leaky_relu_gelu__v2.py")
        grade("my_kernel.py", problem="conv2d_mul_leaky_relu_gelu")
        grade(source=text, problem="my_problem.py")

    Without `problem` the file's name tells it, as on the command line. `problems` are folders with more of them; the
    other options are those of `Grader`. Starting the workers takes seconds: for many submissions, hold a `Grader`.

    What the submission does wrong is in the verdict. Raises UserError for a file or problem that is not there, and
    SandboxUnavailable where submissions cannot be isolated.
    """
    desk = _Desk(problems)
    work = desk.resolve(path, source, problem)
    with Grader(device=device, sandbox=sandbox, quick=quick, variant=variant) as grader:
        return next(grader.grade_many([work]))


class Grader:
    """Warm workers and references for many submissions. A context manager.

        with Grader(device="cuda") as grader:
            for verdict in grader.grade_many(work):
                ...

    Any thread may call it; submissions are graded one at a time, as they share the machine that times them. CUDA
    extensions are compiled ahead, in parallel.
    """

    def __init__(
        self,
        *,
        problems: Iterable[str | Path] = (),
        device: DeviceChoice = "auto",
        sandbox: SandboxChoice = "auto",
        quick: bool = False,
        variant: str | None = None,
        build_cache: Path | None = None,
        limits: TimeLimits | None = None,
    ) -> None:
        """`problems` are folders with problems beside the shipped ones.

        `device="auto"` reads off each source what it was written for. `quick` takes fewer rounds of correctness and
        timing. `variant` grades one variant of each problem only; such verdicts are not ranked. `sandbox="weak"` goes
        without bubblewrap. `build_cache` is where compiled extensions are kept (~/.cache/grader/builds), `limits` how
        long a submission may take.

        Raises UserError for a device or folder that is not there, SandboxUnavailable where the sandbox does not work.
        """
        from grader.pipeline import Grader as Pipeline

        self._desk = _Desk(problems)
        self._pipeline = Pipeline(
            device=device, sandbox=sandbox, quick=quick, variant=variant, build_cache=build_cache, limits=limits
        )
        self._turn = threading.RLock()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, when the submission in hand has its verdict."""
        with self._turn:
            self._pipeline.close()

    def settings_for(self, submission: Submission) -> Settings:
        """What a verdict on it will carry: its device and this grader's options."""
        return self._pipeline.settings_for(submission)

    def environment_for(self, submission: Submission) -> Environment:
        """The machine and versions that a verdict on it will carry. With the settings: whether a stored one holds."""
        return self._pipeline.environment_for(submission)

    def grade(
        self,
        path: str | Path | None = None,
        *,
        source: str | None = None,
        problem: str | Path | Problem | None = None,
    ) -> Verdict:
        """Grade one file or text; as the function `grade`, with this grader's workers and options."""
        work = self._desk.resolve(path, source, problem)
        with self._turn:
            return self._pipeline.grade(*work)

    def grade_many(self, work: Iterable[Work]) -> Generator[Verdict, None, None]:
        """Verdicts in the order of the work, each as it is reached. Raises UserError at work that cannot be graded.

        `work` is read as it is needed, a few items ahead, and may be endless.
        """
        verdicts = self._pipeline.grade_many(map(self._desk.pair, work))
        try:
            while True:
                with self._turn:
                    reached = next(verdicts, None)
                if reached is None:
                    return
                yield reached[2]
        finally:
            with self._turn:
                verdicts.close()

    async def agrade_many(self, work: Iterable[Work]) -> AsyncGenerator[Verdict, None]:
        """`grade_many` in a thread of its own, so that an event loop goes on meanwhile.

        `work` is read in that thread. Cancelled, or left early, it ends when the submission in hand has its verdict,
        which is dropped: no worker is left in the middle of a job, and the grader can be used again at once.
        """
        loop = asyncio.get_running_loop()
        verdicts = self.grade_many(work)
        with ThreadPoolExecutor(1, thread_name_prefix="grader") as thread:
            try:
                while (verdict := await loop.run_in_executor(thread, next, verdicts, None)) is not None:
                    yield verdict
            finally:
                await _to_the_end(loop.run_in_executor(thread, verdicts.close))


async def _to_the_end(last: asyncio.Future[None]) -> None:
    """Wait for it however often we are cancelled meanwhile; then be cancelled."""
    cancelled: asyncio.CancelledError | None = None
    while not last.done():
        try:
            await asyncio.shield(last)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class _Desk:
    """Makes pairs of problem and submission out of what callers have."""

    def __init__(self, folders: Iterable[str | Path]) -> None:
        self._catalog = find_problems(map(Path, folders))

    def pair(self, work: Work) -> tuple[Problem, Submission]:
        """Raises UserError for what is no work, and for an unknown problem."""
        if isinstance(work, Submission):
            return self._catalog.problem(work.problem_id), work
        if isinstance(work, Mapping):
            return self._line(work)
        problem, source = work
        if isinstance(source, Submission):
            return self._problem(problem), source
        return self.resolve(source, None, problem) if isinstance(source, Path) else self.resolve(None, source, problem)

    def resolve(
        self, path: str | Path | None, source: str | None, problem: str | Path | Problem | None
    ) -> tuple[Problem, Submission]:
        """Raises UserError for a file or problem that is not there, and where path and source are both given."""
        if (path is None) == (source is None):
            raise UserError("give a submission's path or its source, one of them")
        if path is not None:
            return self._file(Path(path), None if problem is None else self._problem(problem))
        if problem is None:
            raise UserError("a source has no file name that tells its problem; name it: problem=...")
        assert source is not None
        found = self._problem(problem)
        return found, _text(found, source)

    def _line(self, line: Mapping[str, object]) -> tuple[Problem, Submission]:
        problem, source = line.get("problem"), line.get("source")
        unknown = set(line) - _KEYS
        if not isinstance(problem, str | Path | Problem) or not isinstance(source, str) or unknown:
            raise UserError(
                f"a mapping with {', '.join(sorted(map(str, line))) or 'nothing'} is no work; it needs problem and "
                "source, and may have author, label and sample"
            )
        found = self._problem(problem)
        rest = {key: line[key] for key in ("author", "label", "sample") if line.get(key) is not None}
        return found, _text(found, source, **rest)

    def _problem(self, problem: str | Path | Problem) -> Problem:
        if isinstance(problem, Problem):
            return problem
        known = self._catalog.problems.get(problem) if isinstance(problem, str) else None
        if known is not None:
            return known
        path = Path(problem)
        if path.suffix != ".py" and isinstance(problem, str):
            return self._catalog.problem(problem)  # raises, naming the nearest ids
        return find_problems([path]).problem(path.stem)

    def _file(self, path: Path, problem: Problem | None) -> tuple[Problem, Submission]:
        if path.is_dir():
            raise UserError(f"{path}: a folder; `grade` takes one file")
        catalog = self._catalog
        if problem is not None:
            catalog = Catalog({**catalog.problems, problem.id: problem})
        (submission,) = find_submissions([path], catalog, problem_id=problem.id if problem else None)
        return catalog.problem(submission.problem_id), submission


def _text(problem: Problem, source: str, **given: object) -> Submission:
    """A submission that is no file. Raises UserError for an author, label or sample of a wrong type."""
    unreadable = None if source.strip() else "The file is empty."
    fields = {"author": NOBODY, "problem_id": problem.id, "path": f"{problem.id}.py", **given}
    try:
        return Submission.model_validate({**fields, "source": source, "unreadable": unreadable})
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{first['loc'][0]} of a piece of work: {first['msg']}") from None
