"""Measures how long a leaderboard takes, by the number of stored verdicts.

    python benchmarks/leaderboard.py [--verdicts 200000] [--rounds 9]

Makes a database in a temporary folder: authors with several samples of each problem, in a realistic mix of statuses
and labels. A few thousand verdicts are saved by the store's own code, and the rest are copied in bulk.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import text

from db import Store
from db.labels import EVERYTHING, LabelChoice
from db.leaderboard import leaderboard
from db.standings import rebuild

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from grader.verdict.models import Status
from tests import samples

PROBLEMS = 250
SAVED = 2000
STATUSES = {
    Status.CORRECT: 35,
    Status.MISSING_BACKWARD: 20,
    Status.WRONG_BACKWARD: 5,
    Status.WRONG_OUTPUT: 15,
    Status.BUILD_ERROR: 20,
    Status.TIMEOUT: 5,
}
LABELS = {
    (): 40,
    ("vendor_library",): 15,
    ("torch_fallback",): 10,
    ("reduced_precision",): 10,
    ("wraps_reference", "no_custom_kernel"): 8,
    ("no_custom_kernel",): 7,
    ("vendor_library", "reduced_precision"): 6,
    ("torch_fallback", "vendor_library"): 4,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verdicts", type=int, default=200_000, help="verdicts in the database")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each query")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "grader.db") as store:
        fill(store, options.verdicts)
        size = (Path(folder) / "grader.db").stat().st_size
        print(f"{options.verdicts} verdicts, {size / 2**20:.0f} MiB")
        for name, query in {
            "total": {},
            "forward": {"board": "forward"},
            "one problem": {"problem": "problem_7"},
            "pass@k": {"pass_at": (1, 5)},
            "all": {"labels": EVERYTHING},
            "without": {"labels": LabelChoice(without=("no_custom_kernel",))},
            "without two": {
                "labels": LabelChoice(without=("no_custom_kernel", "torch_fallback")),
                "board": "forward",
            },
            "with": {"labels": LabelChoice(having=("vendor_library",))},
            "with, pass@k": {"labels": LabelChoice(having=("vendor_library",)), "pass_at": (1, 5)},
        }.items():
            seconds = [timed(lambda query=query: leaderboard(store, **query)) for _ in range(options.rounds)]
            entries = len(leaderboard(store, **query).entries)
            print(f"  {name:<13} median {1000 * statistics.median(seconds):7.1f} ms   {entries} entries")


def fill(store: Store, count: int) -> None:
    """Save real rows, then copies of them with other authors, sources and figures."""
    draw = random.Random(0)
    with store.run([]) as run:
        for index in range(min(SAVED, count)):
            problem_id, author = f"problem_{index % PROBLEMS}", f"author_{index // PROBLEMS}"
            of = samples.submission(author, problem_id, source=f"text {index}", sample=0)
            status, labels = drawn(draw, STATUSES, 1)[0], drawn(draw, LABELS, 1)[0]
            speedup = draw.lognormvariate(0.0, 0.6)
            verdict = samples.verdict(of, problem_source=problem_id, status=status, total=speedup, labels=labels)
            store.save(verdict, of, samples.problem(problem_id, source=problem_id), run)
    columns = "run_id, submission_id, problem, label, device, variant, quick, sandbox, forward_status, backward_status"
    columns += ", status, problem_hash, environment_hash, settings_hash, created_at, document, strict_fp32"
    columns += ", total_bound_speedup, forward_bound_speedup"
    figures = "total_speedup, total_ci_low, total_ci_high, forward_speedup, forward_ci_low, forward_ci_high"
    scaled = ", ".join(f"{name} * :factor" for name in figures.split(", "))
    with store.writing() as session:
        for copy in range(1, -(-count // SAVED)):
            labels = [json.dumps(one) for one in drawn(draw, LABELS, min(SAVED, count - copy * SAVED))]
            values = {"copy": copy, "factor": draw.lognormvariate(0.0, 0.2), "labels": json.dumps(labels)}
            hashed = "hex(randomblob(32))"
            session.execute(text(f"insert into sources (hash, text) values ({hashed}, :copy)"), values)
            session.execute(
                text(
                    f"insert into verdicts ({columns}, author, sample, source_hash, labels, {figures}) "
                    f"select {columns}, author || '_' || (:copy / 10), :copy % 10, "
                    f"(select hash from sources order by rowid desc limit 1), d.value, {scaled} "
                    f"from json_each(:labels) d join verdicts on verdicts.id = d.key + 1"
                ),
                values,
            )
        rebuild(session.connection())


def drawn(draw: random.Random, weights: dict, count: int) -> list:
    return draw.choices([*weights], [*weights.values()], k=count)


def timed(call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
