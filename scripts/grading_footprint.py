#!/usr/bin/env python3
"""Count the worker jobs of one grading and the referee's files whose functions it runs.

    python -m scripts.grading_footprint tests/cases/honest_plain/two_linears.py --problem two_linears
    python -m scripts.grading_footprint reference_solutions/cpu/conv2d_mul_leaky_relu_gelu.py --verbose

The submission is graded in this process with --quick on the CPU, as the first of a fresh process. Jobs are counted from
the DEBUG lines of the logger `grader.executor`, and a stage's jobs are those logged before its INFO line. A file counts
if one of its functions runs between opening a `Grader` and closing it; imports and worker processes do not count.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from grader.api import Grader
from grader.grading import pipeline
from grader.options import GraderOptions

ROOT = Path(__file__).parents[1]
ROOMS = ("db", "grader")
"""Packages whose files count."""


class JobCounter(logging.Handler):
    """Counts jobs by stage, role and kinds of steps."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.jobs = Counter[tuple[str, str, str]]()
        self._pending: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Count a job, or attribute the jobs since the last stage to the stage that has just ended."""
        fields = record.__dict__
        if "steps" in fields:
            self._pending.append((fields["role"], fields["steps"]))
        elif "stage" in fields:
            stage = "appraisal" if fields["stage"] == "verdict" else fields["stage"]
            self.jobs.update((stage, role, steps) for role, steps in self._pending)
            self._pending.clear()

    def report(self, *, verbose: bool) -> Iterator[str]:
        """The number of jobs, by stage and role, and with `verbose` by kinds of steps."""
        yield f"{self.jobs.total()} worker jobs"
        stages = Counter[tuple[str, str]]()
        for (stage, role, _), count in self.jobs.items():
            stages[stage, role] += count
        for of, count in stages.items():
            yield f"  {count:4} {', '.join(of)}"
            if verbose:
                kinds = [(count, steps) for (*own, steps), count in self.jobs.items() if tuple(own) == of]
                yield from (f"         {count:4} {steps}" for count, steps in sorted(kinds, reverse=True))


class FileCollector:
    """Collects the files whose functions are called meanwhile, in any thread. A context manager."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    def __enter__(self) -> FileCollector:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a module or class
            self.files.setdefault(code.co_filename)

    def of_rooms(self) -> list[str]:
        """Paths in this repository's packages, in the order in which their first functions ran."""
        paths = [Path(name) for name in self.files]
        inside = [path.relative_to(ROOT) for path in paths if path.is_relative_to(ROOT)]
        return [str(path) for path in inside if path.parts[0] in ROOMS]


def main() -> None:
    """Grade one submission and print both figures."""
    parser = argparse.ArgumentParser(description="Count the worker jobs and the referee's files of one grading.")
    parser.add_argument("submission", type=Path)
    parser.add_argument("--problem", help="the problem's id or file; without it, the submission's name says it")
    parser.add_argument("--problems", type=Path, default=ROOT / "tests/cases/problems", help="a folder of problems")
    parser.add_argument("--verbose", action="store_true", help="list the jobs by kinds of steps, and the files")
    arguments = parser.parse_args()
    counter, collector = JobCounter(), FileCollector()
    log = logging.getLogger("grader")
    log.setLevel(logging.DEBUG)
    log.addHandler(counter)
    options = GraderOptions(device="cpu", quick=True)
    assert pipeline is not None  # imported here, so that its imports are not counted
    with collector, Grader(options, problems=[arguments.problems]) as grader:
        verdict = grader.grade(arguments.submission, problem=arguments.problem)
    lines = [f"{arguments.submission}: {verdict.status}", *counter.report(verbose=arguments.verbose)]
    files = collector.of_rooms()
    lines += [f"{len(files)} files", *(f"  {name}" for name in files if arguments.verbose)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
