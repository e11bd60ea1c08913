"""Grades KernelBench's references as submissions for their own problems, at full size.

    python -m benchmarks.kernelbench --checkout DIR [--levels 1,2,3] [--count N] [--ids 23_,level2/42_] --out FILE
    python -m benchmarks.kernelbench --checkout DIR --seconds 540 --each 120 --resume earlier.jsonl --out FILE
    python -m benchmarks.kernelbench --checkout DIR --seconds 0 --resume *.jsonl --page docs/reference/kernelbench.md
    python -m benchmarks.kernelbench --checkout DIR --against-evaluator 20
    python -m benchmarks.kernelbench --checkout DIR --count 40 --gpus all --out FILE

The expected result is known: a reference is correct, and as fast as itself. A row is appended to FILE as soon as a
verdict is reached, as one JSON object per line with its commit, machine and time, so that a run may be cut off at any
time. A problem that has a row of this commit, in FILE or in one of --resume's, is left out. The table is of all these
files together: counts, memory, what took longest by stage, and what is not as expected. --against-evaluator N also runs
KernelBench's own evaluator on N of the problems.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import kernelbench_rows as rows_of
from benchmarks.deadline import Late, deadline
from benchmarks.host_memory import HostMemory
from benchmarks.kernelbench_evaluator import as_submission, compare
from benchmarks.kernelbench_page import write_page
from benchmarks.stage_seconds import StageLog
from grader import Grader, GraderPool, Problem
from grader.catalog.problems import find_problems
from grader.errors import NotGraded
from grader.verdict.models import Verdict
from grader.verdict.stages import FigureTiming

PHASES = ("forward", "backward", "total")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--count", type=int, help="number of problems, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw and of the order")
    parser.add_argument("--ids", help="only these problems, in this order; level1/23_ is the problem that begins so")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gpus", metavar="all|N,...", help="a pool on these GPUs; prints its gradings a minute")
    parser.add_argument("--full", action="store_true", help="grade in full instead of with --quick")
    parser.add_argument("--seconds", type=float, default=1e9, help="end after so many; 0 grades nothing")
    parser.add_argument("--each", type=float, default=180.0, help="limit of one problem, which then is `late`")
    parser.add_argument("--out", type=Path, default=Path("kernelbench.jsonl"))
    parser.add_argument("--resume", type=Path, nargs="+", default=[], metavar="ROWS", help="files of earlier runs")
    parser.add_argument("--any-commit", action="store_true", help="leave out what has a row of any commit")
    parser.add_argument("--commit", help="name in the rows and in what is left out; by default that of the checkout")
    parser.add_argument("--log", type=Path, metavar="FILE", help="every job and stage, as JSON lines")
    parser.add_argument("--raw", action="store_true", help="keep each timed call and the device's clocks in the row")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a page of the documentation from all rows")
    parser.add_argument("--against-evaluator", type=int, default=0, metavar="N")
    chosen = parser.parse_args()
    commit, files = chosen.commit or current_commit(), [*chosen.resume, chosen.out]
    offered = of_levels(chosen.checkout, chosen.levels)
    problems = selected(offered, chosen)
    known = rows_of.known(rows_of.rows(files), None if chosen.any_commit else commit)
    grade_all([problem for problem in problems if name(problem) not in known], commit, chosen)
    ids = {name(problem) for problem in offered}
    collected = [row for row in rows_of.merged(rows_of.rows(files), commit) if rows_of.key(row) in ids]
    print("\n".join(rows_of.table(collected, len(offered))))
    if chosen.page:
        write_page(collected, chosen.page)
    if chosen.against_evaluator:
        seconds = {row["id"]: row["s"] for row in collected}
        compare(problems[: chosen.against_evaluator], seconds, chosen.checkout)


def current_commit() -> str:
    """The short id of the checked-out commit, with a plus sign if tracked files differ from it."""
    command = ["git", "-C", str(Path(__file__).parents[1]), "describe", "--always", "--exclude=*", "--dirty=+"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return "unknown"


def of_levels(checkout: Path, levels: str) -> list[Problem]:
    """The problems of these levels, in the order of their paths."""
    wanted = {f"level{number}" for number in levels.split(",")}
    offered: list[Problem] = list(find_problems([checkout]).problems.values())
    return sorted((one for one in offered if one.path.parent.name in wanted), key=lambda problem: str(problem.path))


def selected(offered: Sequence[Problem], chosen: argparse.Namespace) -> list[Problem]:
    """The problems to grade: those of --ids in its order, else --count in random order."""
    if chosen.ids:
        return [problem for wanted in chosen.ids.split(",") for problem in offered if begins(problem, wanted)]
    drawn = list(offered)
    random.Random(chosen.seed).shuffle(drawn)
    return drawn[: chosen.count]


def begins(problem: Problem, text: str) -> bool:
    """Whether the problem's id, or its level and id, begins with the text."""
    return problem.path.stem.startswith(text) or name(problem).startswith(text)


def name(problem: Problem) -> str:
    """The problem's level and id."""
    return f"{problem.path.parent.name}/{problem.id}"


def grade_all(problems: Sequence[Problem], commit: str, chosen: argparse.Namespace) -> None:
    """Grade the problems while there is time, and append a row to the file for each, as its verdict is reached."""
    end, left = time.monotonic() + chosen.seconds, list(problems)
    with HostMemory() as host, StageLog(chosen.log) as log:
        while left and time.monotonic() < end:
            verdicts = graded_on_gpus if chosen.gpus else graded
            for problem, verdict, seconds in verdicts(tuple(left), end, chosen):
                left.remove(problem)
                row = {"id": problem.id, "level": problem.path.parent.name, "s": round(seconds, 2), "commit": commit}
                row |= {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
                row |= {"host_gib": round(host.take(), 2), **facts(verdict, raw=chosen.raw), **log.take()}
                row["messages"] = [text.replace(f"{chosen.checkout.resolve()}/", "")[:300] for text in row["messages"]]
                if chosen.gpus:  # the log has the jobs of all GPUs at once
                    stages = verdict.seconds.model_dump() if verdict else {}
                    row |= {"stages": {stage: round(took, 2) for stage, took in stages.items()}, "jobs": {}}
                with chosen.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
                print(rows_of.line(row), flush=True)


def graded(
    problems: Sequence[Problem], end: float, chosen: argparse.Namespace
) -> Iterator[tuple[Problem, Verdict | None, float]]:
    """(problem, verdict, seconds) of each in turn; None, and no more, after one that took longer than --each."""
    started = time.monotonic()
    with Grader(device=chosen.device, quick=not chosen.full) as grader:
        verdicts = grader.grade_many((problem, as_submission(problem.source)) for problem in problems)
        for problem in problems:
            seconds = min(chosen.each, end - time.monotonic())
            try:
                with deadline(seconds):
                    verdict = next(verdicts)
            except Late:
                if seconds == chosen.each:
                    yield problem, None, seconds
                return
            assert verdict.problem == problem.id
            yield problem, verdict, time.monotonic() - started
            started = time.monotonic()


def graded_on_gpus(
    problems: Sequence[Problem], end: float, chosen: argparse.Namespace
) -> Iterator[tuple[Problem, Verdict | None, float]]:
    """As `graded`, by a pool: in the order in which verdicts are reached, with the seconds since its GPU's last one."""
    work = ((problem, as_submission(problem.source)) for problem in problems)
    with GraderPool(gpus=chosen.gpus, quick=not chosen.full, limit_seconds=chosen.each) as pool:
        started, now, done = time.monotonic(), 0.0, 0
        last: dict[str | None, float] = {}
        for request, verdict in pool.results(work):
            now, done = time.monotonic(), done + 1
            if isinstance(verdict, NotGraded):
                yield request.problem, None, chosen.each
            else:
                gpu = verdict.environment.device_id
                yield request.problem, verdict, now - last.get(gpu, started)
                last[gpu] = now
            if now > end:  # what runs is dropped
                break
    print(
        f"{done} gradings in {now - started:.1f} s on --gpus {chosen.gpus}: {60 * done / (now - started):.1f} a minute"
    )


def facts(verdict: Verdict | None, *, raw: bool) -> dict[str, Any]:
    """The fields of a verdict that a row has."""
    if verdict is None:
        none: dict[str, Any] = {"status": "late", "codes": [], "messages": ["no verdict in time"], "figures": {}}
        return {**none, "machine": "unknown", "version": "unknown", "device_gib": 0.0}
    timing, environment = verdict.timing, verdict.environment
    timed = {phase: getattr(timing, phase, None) for phase in PHASES}
    figures: dict[str, FigureTiming] = {phase: figure for phase, figure in timed.items() if figure is not None}
    row: dict[str, Any] = {
        "machine": f"{environment.device_name}, torch {environment.torch_version}",
        "version": environment.grader_version,
        "status": verdict.status.value,
        "codes": [diagnosis.code for diagnosis in verdict.diagnoses],
        "messages": [diagnosis.message for diagnosis in verdict.diagnoses],
        "device_gib": round((verdict.peak_device_bytes or 0) / 2**30, 2),
        "figures": {
            phase: [figure.verdict, round(figure.speedup, 4), round(figure.ci_low, 4), round(figure.ci_high, 4)]
            for phase, figure in figures.items()
        },
    }
    if raw and timing is not None:
        row["rounds"] = {
            phase: {"reference_ms": figure.reference_samples_ms, "candidate_ms": figure.candidate_samples_ms}
            for phase, figure in figures.items()
        }
        row["clocks"] = [reading.model_dump() for reading in timing.clocks]
    return row


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
