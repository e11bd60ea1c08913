"""Grading from Python: one submission, many with warm workers, or many beside other work of an event loop.

Importing this module does not import torch; making a `Grader` does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from grader.catalog.problems_and_submissions import find_problems
from grader.catalog.requests import RequestReader, Work
from grader.verdict.models import Environment, Problem, Settings, Submission, TimeLimits, Verdict

DeviceChoice = Literal["auto", "cpu", "cuda"]
SandboxChoice = Literal["auto", "bubblewrap", "weak"]


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
    strict_fp32: bool = False,
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
    oracle = RequestReader(find_problems(map(Path, problems)))
    work = oracle.resolve(path, source, problem)
    with Grader(device=device, sandbox=sandbox, quick=quick, variant=variant, strict_fp32=strict_fp32) as grader:
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
        strict_fp32: bool = False,
        baselines: bool = False,
        build_cache: Path | None = None,
        limits: TimeLimits | None = None,
    ) -> None:
        """`problems` are folders with problems beside the shipped ones.

        `device="auto"` reads off each source what it was written for. `quick` takes fewer rounds of correctness and
        timing. `variant` grades one variant of each problem only; such verdicts are not ranked. `sandbox="weak"` goes
        without bubblewrap. `strict_fp32` times with TensorFloat-32 off on both sides. `baselines` times torch.compile
        of the reference too, which takes minutes once for each problem and machine. `build_cache` is where compiled
        extensions are kept (~/.cache/grader/builds), `limits` how long a submission may take.

        Raises UserError for a device or folder that is not there, SandboxUnavailable where the sandbox does not work.
        """
        from grader.grading.pipeline import Grader as Pipeline

        self._desk = RequestReader(find_problems(map(Path, problems)))
        self._pipeline = Pipeline(
            device=device,
            sandbox=sandbox,
            quick=quick,
            variant=variant,
            strict_fp32=strict_fp32,
            baselines=baselines,
            build_cache=build_cache,
            limits=limits,
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
