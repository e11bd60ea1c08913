"""Measures a pool with gradings that cost nothing: its overhead, its memory, and what killed nodes of a cluster cost.

    python -m benchmarks.pool                                 # overhead of 10,000 gradings on 2 processes
    python -m benchmarks.pool --ray-nodes 8 --count 1000      # a simulated Ray cluster whose nodes are killed at random

Prints one JSON object. Run it in the repository: the gradings are those of `tests.pool.engine`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from grader import GraderPool
from grader.verdict.models import Problem, Submission
from tests import samples

ENGINE = "tests.pool.engine:CheapGrader"
KILL_SECONDS = (2.0, 6.0)
"""Between two kills of a node, drawn evenly."""
NODE_TRIES = 3
"""Starts of a simulated node: Ray waits 30 s for each, which is too little on a busy machine."""
TOO_BUSY = 75
"""Exit status where no node starts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds that each grading takes")
    parser.add_argument("--ray-nodes", type=int, default=0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.ray_nodes:
        print(json.dumps(simulated(given.ray_nodes, given.count, given.kills, given.sleep, given.seed)))
    else:
        print(json.dumps(overhead(given.count, given.workers, given.sleep)))


def work(count: int, sleep: float) -> Iterator[tuple[Problem, Submission]]:
    """Distinct sources by as many authors."""
    for number in range(count):
        source = f"# {number}\n# sleep: {sleep}\n{samples.SUBMISSION_SOURCE}"
        yield samples.problem(), samples.submission(author=f"author{number}", source=source)


def overhead(count: int, workers: int, sleep: float) -> dict[str, object]:
    """Milliseconds of a grading beyond its own time, and memory after a tenth of them and at the end."""
    with GraderPool(workers=workers, engine=ENGINE, device="cpu") as pool:
        began, found, early = time.monotonic(), Counter[str](), 0
        for verdict in pool.grade_many(work(count, sleep)):
            found[verdict.author] += 1
            if found.total() == count // 10:
                early = _peak_mib()
        seconds = time.monotonic() - began
    return {
        "gradings": found.total(),
        "twice": sum(number - 1 for number in found.values()),
        "workers": workers,
        "seconds": round(seconds, 2),
        "overhead_ms": round(1e3 * (seconds * workers / count - sleep), 2),
        "peak_mib_after_a_tenth": early,
        "peak_mib": _peak_mib(),
    }


def simulated(nodes: int, count: int, kills: int, sleep: float, seed: int) -> dict[str, object]:
    """Gradings on a simulated cluster with one worker a node, while random nodes are killed and replaced."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_health_check_period_ms", "500")
    os.environ.setdefault("RAY_health_check_failure_threshold", "4")
    memory = 80 << 20  # the least that Ray accepts
    head = {"num_cpus": 0, "object_store_memory": memory, "include_dashboard": False}
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args=head))

    def add() -> Any:
        return started(lambda: cluster.add_node(num_cpus=1, object_store_memory=memory, wait=False))

    alive = [add() for _ in range(nodes)]
    cluster.wait_for_nodes()
    killed, draw = 0, random.Random(seed)
    found, statuses, done = Counter[str](), Counter[str](), threading.Event()

    def grade(pool: GraderPool) -> None:
        try:
            for verdict in pool.grade_many(work(count, sleep)):
                found[verdict.author] += 1
                statuses[verdict.status] += 1
        finally:
            done.set()

    try:
        with GraderPool(ray=cluster.address, workers=nodes, engine=ENGINE, device="cpu") as pool:
            began = time.monotonic()
            grading = threading.Thread(target=grade, args=(pool,))
            grading.start()
            while killed < kills and not done.wait(draw.uniform(*KILL_SECONDS)):
                cluster.remove_node(alive.pop(draw.randrange(len(alive))), allow_graceful=False)
                killed += 1
                alive.append(add())  # Ray starts nodes in the main thread only
            grading.join()
            seconds = time.monotonic() - began
            graded = sum(place.graded for place in pool.places())
    finally:
        cluster.shutdown()
    return {
        "nodes": nodes,
        "killed": killed,
        "gradings": count,
        "verdicts": found.total(),
        "lost": count - len(found),
        "twice": found.total() - len(found),
        "answers": graded,
        "statuses": dict(statuses),
        "seconds": round(seconds, 1),
    }


def started(start: Callable[[], Any]) -> Any:
    """The node or cluster. Exits with TOO_BUSY if it does not start."""
    for _ in range(NODE_TRIES):
        with suppress(Exception):  # as Ray raises it for a node that did not start in time
            return start()
    print("no simulated node starts within 30 s; run this on an idle machine", file=sys.stderr)
    sys.exit(TOO_BUSY)


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()
