"""What a batch costs on the CPU: `python -m benchmarks.batch [--authors 3] [--sizes 100 1000 10000]`

First the CPU twins of the reference solutions under several authors' names, with --quick and their builds cached: where
the seconds of each go. Then more and more files without a ModelNew, which cost bookkeeping alone: milliseconds each,
and the largest resident memory that the referee has had so far. Needs no GPU.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence

from grader.catalog.problems_and_submissions import Catalog, find_problems, find_submissions
from grader.catalog.shipped import shipped
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import StageSeconds, Submission


def main() -> None:
    parser = argparse.ArgumentParser(description="What a batch costs on the CPU")
    parser.add_argument("--authors", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000, 10000])
    chosen = parser.parse_args()
    catalog = find_problems()
    twins = find_submissions([shipped("reference_solutions") / "cpu"], catalog)
    if chosen.authors:
        with Pipeline(GraderOptions(device="cpu", quick=True)) as grader:
            list(grader.grade_many(grader.request(catalog.problem(twin.problem_id), twin) for twin in twins))
            several = [
                twin.model_copy(update={"author": f"author{number}"})
                for number in range(chosen.authors)
                for twin in twins
            ]
            cached_builds(grader, catalog, several)
    for size in chosen.sizes:
        bookkeeping(catalog, twins[0], size)


def cached_builds(grader: Pipeline, catalog: Catalog, work: Sequence[Submission]) -> None:
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
