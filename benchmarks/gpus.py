"""Gradings a second of one `Grader`, of a pool of one GPU, and of a pool of all GPUs of this host.

    python -m benchmarks.gpus --problems DIR --problem ID [--seconds 30] [--rounds 2] [--out FILE] [--log FILE]

The problem's reference is graded as a submission, each time with another comment, with --quick. The sides take turns,
--seconds each. `share of one` is a pool of one GPU with its share of the cores, as a host with one GPU would have. A
rate is that between the first and the last verdict of each GPU, so that starts and ends do not count. `stages` are
medians of seconds. Prints a JSON object for each turn, and a table of the rates. With --log, which costs some time,
`jobs` are the jobs of a grading and their seconds, by worker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.kernelbench_evaluator import as_submission
from benchmarks.stage_seconds import StageLog
from grader import Grader, GraderPool
from grader.catalog.problems import find_problems
from grader.machine.backends import backend
from grader.verdict.models import Device, Problem, Submission, Verdict

SIDES = ("one grader", "pool of one", "share of one", "pool of all")
STAGES = ("build", "start", "forward", "backward", "timing", "inspection")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=Path, required=True, metavar="DIR", help="a folder of problems")
    parser.add_argument("--problem", required=True, metavar="ID")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each turn, after the start")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each")
    parser.add_argument("--out", type=Path, help="append the JSON objects to this file")
    parser.add_argument("--log", type=Path, help="log each job to this file")
    given = parser.parse_args()
    problem = find_problems([given.problems]).problem(given.problem)
    rates = defaultdict[str, list[float]](list)
    for number in range(given.rounds):
        for side in given.sides:
            row = {
                "problem": problem.id,
                "side": side,
                "round": number,
                **measured(side, problem, given.seconds, given.log),
            }
            rates[side].append(row["rate"])
            print(json.dumps(row), flush=True)
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    for side, found in rates.items():
        print(f"{side:<12} {statistics.mean(found):.3f} a second  {[round(rate, 3) for rate in found]}", flush=True)


def measured(side: str, problem: Problem, seconds: float, log: Path | None) -> dict[str, Any]:
    """The rate, gradings of each GPU, statuses and median seconds of stages of one turn."""
    ended = defaultdict[str, list[float]](list)
    verdicts: list[Verdict] = []
    until = None
    cores = os.sched_getaffinity(0)
    if side == "share of one":
        os.sched_setaffinity(0, sorted(cores)[: len(cores) // len(backend(Device.CUDA).names())])
    with StageLog(log) if log else nullcontext() as logged, opened(side) as grader:
        for verdict in grader.grade_many(work(problem)):
            now = time.monotonic()
            until = until or now + seconds
            ended[verdict.environment.device_id or ""].append(now)
            verdicts.append(verdict)
            if now > until:
                break
        jobs = logged.take()["jobs"] if logged else {}
    os.sched_setaffinity(0, cores)
    return {
        "rate": sum((len(times) - 1) / (times[-1] - times[0]) for times in ended.values() if len(times) > 1),
        "gradings": [len(times) for times in ended.values()],
        "statuses": sorted({verdict.status.value for verdict in verdicts}),
        "stages": {
            name: round(statistics.median(getattr(one.seconds, name) or 0.0 for one in verdicts), 3) for name in STAGES
        },
        "jobs": {name: [round(value / len(verdicts), 2) for value in of] for name, of in jobs.items()},
    }


def opened(side: str) -> Grader | GraderPool:
    """The grader of a side."""
    if side == "one grader":
        return Grader(device="cuda", quick=True)
    return GraderPool(device="cuda", quick=True, gpus="all" if side == "pool of all" else [0])


def work(problem: Problem) -> Iterator[tuple[Problem, Submission]]:
    """The reference as a submission, without end."""
    source, number = as_submission(problem.source), 0
    while True:
        number += 1
        yield problem, Submission(author=f"a{number}", problem_id=problem.id, path="", source=f"{source}\n# {number}\n")


if __name__ == "__main__":
    main()
