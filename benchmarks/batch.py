"""Measures what a batch costs on the CPU.

    python -m benchmarks.batch [--authors 3] [--sizes 100 1000 10000]

The first part grades the CPU versions of the reference solutions under several authors, with --quick and cached
builds, and prints the seconds by stage. The second grades growing numbers of files without a ModelNew, which need
bookkeeping only, and prints the milliseconds per file and the referee's peak resident memory. Needs no GPU.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence

from grader.catalog.own_folders import shipped
from grader.catalog.problems import Catalog, find_problems
from grader.catalog.submissions import find_submissions
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Submission
from grader.verdict.stages import StageSeconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a batch costs on the CPU")
    parser.add_argument("--authors", type=int, default=3, help="authors of each solution")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000, 10000], help="files of each batch")
    arguments = parser.parse_args()
    catalog = find_problems()
    solutions = find_submissions([shipped("reference_solutions") / "cpu"], catalog).submissions
    if arguments.authors:
        with Pipeline(GraderOptions(device="cpu", quick=True)) as grader:
            requests = [grader.request(catalog.problem(solution.problem_id), solution) for solution in solutions]
            list(grader.grade_many(requests))
            repeated = [
                solution.model_copy(update={"author": f"author{number}"})
                for number in range(arguments.authors)
                for solution in solutions
            ]
            cached_builds(grader, catalog, repeated)
    for size in arguments.sizes:
        bookkeeping(catalog, solutions[0], size)


def cached_builds(grader: Pipeline, catalog: Catalog, work: Sequence[Submission]) -> None:
    """Print the seconds of one submission, by stage."""
    started = time.monotonic()
    verdicts = list(grader.grade_many(grader.request(catalog.problem(one.problem_id), one) for one in work))
    seconds = time.monotonic() - started
    stages = {
        name: sum(getattr(verdict.seconds, name) or 0.0 for verdict in verdicts) / len(verdicts)
        for name in StageSeconds.model_fields
    }
    spent = ", ".join(f"{name} {value:.2f}" for name, value in stages.items())
    statuses = ", ".join(sorted({verdict.status for verdict in verdicts}))
    print(f"{len(work)} with cached builds: {seconds / len(work):.2f} s each ({spent}); {statuses}", flush=True)


def bookkeeping(catalog: Catalog, template: Submission, size: int) -> None:
    """Print the milliseconds of one file that cannot be graded."""
    problem = catalog.problem(template.problem_id)
    work = (
        template.model_copy(update={"author": f"author{number}", "source": f"number = {number}\n"})
        for number in range(size)
    )
    started = time.monotonic()
    with Pipeline(GraderOptions(device="cpu", quick=True)) as grader:
        statuses = {verdict.status for verdict in grader.grade_many(grader.request(problem, one) for one in work)}
    seconds = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{size} without ModelNew: {1e3 * seconds / size:.2f} ms each, {peak:.2f} GiB; {', '.join(statuses)}")


if __name__ == "__main__":
    main()
