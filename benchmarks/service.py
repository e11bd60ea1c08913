"""Measures a server with many clients at once: each verdict once, and the milliseconds that a line costs.

    python -m benchmarks.service --clients 32 --lines 100               # gradings that cost nothing
    python -m benchmarks.service --clients 32 --lines 2 --real          # gradings of a small problem on the CPU
    python -m benchmarks.service --known 1000000                        # a stream of one known submission: its memory

Prints one JSON object. Run it in the repository: the gradings at no cost are those of `tests.pool.engine`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from db import Store
from grader import Client
from tests import samples
from tests.serve.serving import ROOT, Server

TOKEN = "a token of this benchmark"
CHEAP = """
import grader.cli.grade, grader.pool.pool
from tests.fakes import FakeGrader
grader.pool.pool.ENGINE = "tests.pool.engine:CheapGrader"
grader.cli.grade.open_grader = FakeGrader
import grader.cli
grader.cli.main()
"""
"""The command line with gradings that cost nothing."""
CASES = ROOT / "tests" / "cases"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--lines", type=int, default=100, help="of each client")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--real", action="store_true", help="grade a small problem on the CPU")
    parser.add_argument("--known", type=int, default=0, help="lines of a stream whose verdict is known")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "problems").mkdir()
        (Path(folder) / "problems" / "scale.py").write_text(samples.PROBLEM_SOURCE)
        found = (
            stream(Path(folder), given.known)
            if given.known
            else clients(Path(folder), given.clients, given.lines, given.workers, real=given.real)
        )
    print(json.dumps(found))


def clients(folder: Path, count: int, lines: int, workers: int, *, real: bool) -> dict[str, object]:
    """Each client sends its lines in one batch and reads their verdicts."""
    problem = "scale_bias_relu" if real else "scale"
    text = (CASES / "honest_plain" / "scale_bias_relu.py").read_text() if real else samples.SUBMISSION_SOURCE
    options = ["--submit", "--problems", str(CASES / "problems" if real else folder / "problems")]
    options += ["--workers", str(workers), "--device", "cpu", "--quick", "--seconds", "0.3"]
    program = ("-m", "grader") if real else ("-c", CHEAP)

    def one(client: int) -> Counter[str]:
        sent = (
            {"problem": problem, "source": f"# {client} {n}\n{text}", "author": f"a{client}", "label": f"v{n}"}
            for n in range(lines)
        )
        with Client(server.address, TOKEN) as grader:
            return Counter(f"{verdict.author} {verdict.label} {verdict.status}" for verdict in grader.grade_many(sent))

    with Server(folder / "g.db", *options, program=program, GRADER_TOKEN=TOKEN) as server:
        began = time.monotonic()
        with ThreadPoolExecutor(count) as threads:
            found = sum(threads.map(one, range(count)), Counter[str]())
        seconds = time.monotonic() - began
    with Store.open(folder / "g.db") as store:
        stored = store.extent()[0]
    return {
        "clients": count,
        "lines": count * lines,
        "received": found.total(),
        "twice": found.total() - len(found),
        "stored": stored,
        "statuses": dict(Counter(name.rpartition(" ")[2] for name in found.elements())),
        "seconds": round(seconds, 1),
        "ms_a_line": round(1e3 * seconds / (count * lines), 1),
    }


def stream(folder: Path, count: int) -> dict[str, object]:
    """`grader grade -` with so many lines of one submission that is known, and its peak memory."""
    line = json.dumps({"problem": "scale", "source": samples.SUBMISSION_SOURCE, "author": "ann"}).encode() + b"\n"
    command = [sys.executable, "-c", CHEAP, "grade", "-", "--problems", "problems"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        status = Path(f"/proc/{process.pid}/status")
        peaks = []
        for part, size in parts(count):
            process.stdin.write(line * size)
            if part in (count // 10, count):
                process.stdin.flush()
                peaks.append(int(status.read_text().partition("VmHWM:")[2].split()[0]) >> 10)
        process.stdin.close()
        lines = process.stderr.read().decode().splitlines()
    seconds = time.monotonic() - began
    return {
        "lines": count,
        "said": lines[-1:],
        "seconds": round(seconds, 1),
        "ms_a_line": round(1e3 * seconds / count, 3),
        "peak_mib_after_a_tenth": peaks[0],
        "peak_mib": peaks[-1],
    }


def parts(count: int) -> Iterator[tuple[int, int]]:
    """(lines so far, lines of this part), a thousand parts."""
    size = max(1, count // 1000)
    for done in range(size, count + 1, size):
        yield done, size


if __name__ == "__main__":
    main()
