#!/usr/bin/env python3
"""Count the worker jobs of one grading and the referee's files and functions that it runs.

    python -m scripts.grading_footprint tests/cases/honest_plain/two_linears.py --problem two_linears
    python -m scripts.grading_footprint reference_solutions/cpu/conv2d_mul_leaky_relu_gelu.py --verbose

The submission is graded in this process with --quick on the CPU, as the first of a fresh process. Jobs are counted from
the DEBUG lines of the logger `grader.executor`, and a stage's jobs are those logged before its INFO line. A file counts
if one of its functions runs between opening a `Grader` and closing it; imports, lambdas and worker processes do not
count.
"""

from __future__ import annotations

import argparse
import ast
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
PACKAGES = ("db", "grader")
"""Packages whose files count."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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
        for stage_and_role, count in stages.items():
            yield f"  {count:4} {', '.join(stage_and_role)}"
            if verbose:
                kinds = [(count, steps) for (*own, steps), count in self.jobs.items() if tuple(own) == stage_and_role]
                yield from (f"         {count:4} {steps}" for count, steps in sorted(kinds, reverse=True))


class FunctionCollector:
    """Collects the functions that are called meanwhile, in any thread, by file. A context manager."""

    def __init__(self) -> None:
        self._lines: dict[str, set[int]] = {}
        """First lines of functions, by the name of their file."""

    def __enter__(self) -> FunctionCollector:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a module or class
            self._lines.setdefault(code.co_filename, set()).add(code.co_firstlineno)

    def of_rooms(self) -> dict[str, tuple[int, int]]:
        """Functions that ran and functions that exist, by path in this repository's packages, as the files were met."""
        found = {}
        for name, lines in self._lines.items():
            path = Path(name)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES:
                defined = first_lines(path)
                if ran := lines & defined:
                    found[str(path.relative_to(ROOT))] = len(ran), len(defined)
        return found


def first_lines(path: Path) -> set[int]:
    """The first line of each function in a file, that of its first decorator if it has one."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, FUNCTIONS)]
    return {min(one.lineno for one in (node, *node.decorator_list)) for node in functions}


def main() -> None:
    """Grade one submission and print both figures."""
    parser = argparse.ArgumentParser(description="Count the worker jobs and the referee's files of one grading.")
    parser.add_argument("submission", type=Path)
    parser.add_argument("--problem", help="the problem's id or file; without it, the submission's name says it")
    parser.add_argument("--problems", type=Path, default=ROOT / "tests/cases/problems", help="a folder of problems")
    parser.add_argument("--verbose", action="store_true", help="list jobs by kinds of steps, and files")
    arguments = parser.parse_args()
    counter, collector = JobCounter(), FunctionCollector()
    log = logging.getLogger("grader")
    log.setLevel(logging.DEBUG)
    log.addHandler(counter)
    options = GraderOptions(device="cpu", quick=True)
    assert pipeline is not None  # imported here, so that its imports are not counted
    with collector, Grader(options, problems=[arguments.problems]) as grader:
        verdict = grader.grade(arguments.submission, problem=arguments.problem)
    lines = [f"{arguments.submission}: {verdict.status}", *counter.report(verbose=arguments.verbose)]
    files = collector.of_rooms()
    ran, defined = (sum(column) for column in zip(*files.values(), strict=True))
    lines += [f"{len(files)} files, {ran} of their {defined} functions"]
    lines += [f"  {ran:4} of {defined:4} {name}" for name, (ran, defined) in files.items() if arguments.verbose]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
