"""Grades KernelBench's references as submissions for their own problems, at full size.

    python -m benchmarks.kernelbench --checkout DIR [--levels 1,2,3] [--count N] [--only 23_ --only 42_] [--out FILE]
    python -m benchmarks.kernelbench --checkout DIR --seconds 0 --out FILE --page docs/reference/kernelbench.md
    python -m benchmarks.kernelbench --checkout DIR --against-evaluator 20

The expected result is known: a reference is correct, and as fast as itself. The table shows for each problem the
verdict, the seconds, the peak device and host memory, and the figures called faster or slower. Results are appended to
FILE, one JSON object per line; problems that are already in it are skipped. --against-evaluator N also runs
KernelBench's own evaluator (5 correctness and 100 performance trials, forward only, one process per problem) on N of
the problems.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.child import ask
from benchmarks.kernelbench_page import COUNTS, write_page
from grader import Grader, Problem
from grader.catalog.problems import find_problems
from grader.verdict.models import Verdict

EVALUATE = """
import importlib.util, json, sys, torch
from pathlib import Path
from unittest.mock import MagicMock
for name in ("openai", "litellm", "dotenv", "tqdm", "requests"):  # its generation of kernels needs them
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = MagicMock()
from kernelbench import eval as evaluator
reference, submission = (Path(path).read_text() for path in sys.argv[1:3])
result = evaluator.eval_kernel_against_ref(
    original_model_src=reference, custom_model_src=submission, measure_performance=True,
    num_correct_trials=5, num_perf_trials=100, device=torch.device("cuda:0"))
print(json.dumps({"compiled": result.compiled, "correct": result.correctness}))
"""
HOST_INTERVAL_SECONDS = 0.1
"""Interval at which the host's memory is sampled."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--count", type=int, help="number of problems, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw and of the order")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only problems whose file name begins with TEXT"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--full", action="store_true", help="grade in full instead of with --quick")
    parser.add_argument("--seconds", type=float, help="start no further problem after this many seconds; 0: none")
    parser.add_argument("--out", type=Path, default=Path("kernelbench.jsonl"))
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a page of the documentation from all rows")
    parser.add_argument("--against-evaluator", type=int, default=0, metavar="N")
    chosen = parser.parse_args()
    problems = drawn(chosen)
    known = {row["id"] for row in rows(chosen.out)}
    if chosen.seconds != 0:
        grade_all([problem for problem in problems if problem.id not in known], chosen)
    ids = {problem.id for problem in problems}
    collected = [row for row in rows(chosen.out) if row["id"] in ids]
    print_table(collected)
    if chosen.page:
        write_page(collected, chosen.page)
    if chosen.against_evaluator:
        compare(problems[: chosen.against_evaluator], chosen)


def drawn(chosen: argparse.Namespace) -> list[Problem]:
    """The problems of the requested levels, in random order."""
    levels = {f"level{number}" for number in chosen.levels.split(",")}
    problems = [problem for problem in find_problems([chosen.checkout]).problems.values() if level(problem) in levels]
    if chosen.only:
        problems = [problem for problem in problems if problem.path.stem.startswith(tuple(chosen.only))]
    problems.sort(key=lambda problem: str(problem.path))
    random.Random(chosen.seed).shuffle(problems)
    return problems[: chosen.count]


def level(problem: Problem) -> str:
    """The name of the problem's level, such as `level1`."""
    return problem.path.parent.name


def as_submission(source: str) -> str:
    """The reference with its class renamed to ModelNew."""
    return re.sub(r"\bModel\b", "ModelNew", source)


def grade_all(problems: Sequence[Problem], chosen: argparse.Namespace) -> None:
    """Grade the problems and append a row to the file for each, as its verdict is reached."""
    begin = time.monotonic()

    def work() -> Iterator[tuple[Problem, str]]:
        for problem in problems:
            if chosen.seconds is None or time.monotonic() - begin < chosen.seconds:
                yield problem, as_submission(problem.source)

    with HostMemory() as host, Grader(device=chosen.device, quick=not chosen.full) as grader:
        started = begin
        for problem, verdict in zip(problems, grader.grade_many(work()), strict=False):
            seconds, started = time.monotonic() - started, time.monotonic()
            row = {"id": problem.id, "level": level(problem), "s": seconds, "host_gib": host.take(), **facts(verdict)}
            row["messages"] = [text.replace(f"{chosen.checkout.resolve()}/", "")[:300] for text in row["messages"]]
            with chosen.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(line(row), flush=True)


def facts(verdict: Verdict) -> dict[str, Any]:
    """The fields of a verdict that a row has."""
    timing = verdict.timing
    figures = {name: getattr(timing, name) for name in ("forward", "backward", "total")} if timing else {}
    environment = verdict.environment
    return {
        "machine": f"{environment.device_name}, torch {environment.torch_version}",
        "version": environment.grader_version,
        "date": datetime.date.today().isoformat(),
        "status": verdict.status.value,
        "codes": [diagnosis.code for diagnosis in verdict.diagnoses],
        "messages": [diagnosis.message for diagnosis in verdict.diagnoses],
        "stages": {name: round(value, 2) for name, value in verdict.seconds.model_dump().items()},
        "device_gib": (verdict.peak_device_bytes or 0) / 2**30,
        "figures": {
            name: [figure.verdict, round(figure.speedup, 4), round(figure.ci_low, 4), round(figure.ci_high, 4)]
            for name, figure in figures.items()
            if figure is not None
        },
    }


def line(row: dict[str, Any]) -> str:
    """One row as a line of text."""
    stages = " ".join(f"{name[:4]}={seconds}" for name, seconds in row["stages"].items() if seconds >= 0.05)
    different = {name: of for name, of in row["figures"].items() if of[0] in COUNTS}
    why = "" if row["status"] == "correct" else f" {row['codes'][:1]} {row['messages'][:1]}"
    return (
        f"{row['level'][-1]} {row['id'][:44]:44} {row['status']:16} {row['s']:6.1f} s {row['device_gib']:6.1f} GiB "
        f"host {row['host_gib']:5.1f}  {stages}{' ' + str(different) if different else ''}{why}"
    )


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows in a file; none if it does not exist."""
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def print_table(graded: Sequence[dict[str, Any]]) -> None:
    """Print counts, quantiles and the problems whose reference was not graded correct."""
    if not graded:
        return
    seconds = sorted(row["s"] for row in graded)
    figures = [of for row in graded for of in row["figures"].values()]
    different = [of for of in figures if of[0] in COUNTS]
    far = [of for of in different if not 0.99 <= of[1] <= 1.01]
    print(f"\n{len(graded)} problems: {dict(Counter(row['status'] for row in graded))}")
    late = seconds[int(0.95 * (len(seconds) - 1))]
    print(f"seconds: median {statistics.median(seconds):.1f}, 95th percentile {late:.1f}, all {sum(seconds):.0f}")
    device, host = (max(row[of] for row in graded) for of in ("device_gib", "host_gib"))
    print(f"peak GiB: device {device:.1f}, host {host:.1f}")
    print(f"figures: {len(figures)}, called faster or slower {len(different)}, of these outside 1% {len(far)}")
    for row in graded:
        if row["status"] != "correct":
            print(f"  {row['level']}/{row['id']}: {row['status']}: {(row['messages'] or [''])[0]}")


def compare(problems: Sequence[Problem], chosen: argparse.Namespace) -> None:
    """Print the seconds of KernelBench's evaluator on the same problems, next to the grader's."""
    ours = {row["id"]: row for row in rows(chosen.out)}
    environment = {**os.environ, "PYTHONPATH": str(chosen.checkout / "src")}
    folder = chosen.out.parent
    theirs = []
    for problem in problems:
        submission = folder / f"{problem.path.stem}.new.py"
        submission.write_text(as_submission(problem.source))
        started = time.monotonic()
        try:
            answer = ask(EVALUATE, problem.path, submission, environment=environment)
        except SystemExit as error:
            answer = {"correct": str(error)[-200:]}
        theirs.append((ours.get(problem.id, {}).get("s"), time.monotonic() - started))
        print(f"{problem.id[:44]:44} ours {theirs[-1][0]} s, KernelBench {theirs[-1][1]:.1f} s, {answer}", flush=True)
        submission.unlink()
    both = [(own, other) for own, other in theirs if own is not None]
    if both:
        print(f"KernelBench over ours: {sum(other for _, other in both) / sum(own for own, _ in both):.1f}x")


class HostMemory:
    """A context manager that samples the host's memory in use, relative to its value at the start."""

    def __init__(self) -> None:
        self._idle, self._peak = used_bytes(), 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> HostMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def take(self) -> float:
        """Peak in GiB since the last call."""
        peak, self._peak = self._peak, 0
        return peak / 2**30

    def _sample(self) -> None:
        while not self._over.wait(HOST_INTERVAL_SECONDS):
            self._peak = max(self._peak, used_bytes() - self._idle)


def used_bytes() -> int:
    """Bytes of the host's memory in use, without what the kernel can reclaim."""
    fields = dict(text.split(":", 1) for text in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total - available


if __name__ == "__main__":
    main()
