"""Several graders and processes with one database: each source is graded once, whatever is killed meanwhile."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import samples

ROOT = Path(__file__).resolve().parents[2]

MAIN = """
import os, sys, time
from pathlib import Path
import grader.cli.grade
import grader.pool.pool
from tests.fakes import FakeGrader


class Noted(FakeGrader):
    count = 0

    def grade(self, request):
        with open("graded", "a") as file:
            print(request.submission.author, file=file)
        self.count += 1
        while self.count > {free} and not Path({gate!r}).exists():
            time.sleep(0.02)
        return super().grade(request)


Noted.seconds_each = {seconds}
grader.cli.grade.open_grader = Noted
grader.pool.pool.ENGINE = "tests.pool.engine:CheapGrader"
grader.cli.main()
"""


@pytest.fixture
def batch(tmp_path):
    """`batch(count, *commands)` writes a JSONL file with so many sources; `later` is a command of all but the first."""
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "scale.py").write_text(samples.PROBLEM_SOURCE)

    def write(count, *commands, author="author", later=""):
        lines = []
        for number in range(count):
            own = [str(number), *commands, later if number else ""]
            source = "\n".join([*(f"# {command}" for command in own), samples.SUBMISSION_SOURCE])
            lines.append(json.dumps({"problem": "scale", "source": source, "author": f"{author}{number}"}))
        (tmp_path / "batch.jsonl").write_text("".join(f"{line}\n" for line in lines))

    return write


def start(tmp_path, *options, seconds=0.05, free=1000, gate="", before=()):
    """A run, of which all but the first `free` gradings wait for the file `gate`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    code = MAIN.format(seconds=seconds, free=free, gate=gate)
    command = [sys.executable, "-c", code, "grade", "batch.jsonl", "--problems", "problems"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*before, *command, *options], cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out.splitlines(), err


def authors(tmp_path):
    connection = sqlite3.connect(tmp_path / "grader.db")
    try:
        return sorted(author for (author,) in connection.execute("select author from verdicts"))
    finally:
        connection.close()


def everyone(count):
    return sorted(f"author{number}" for number in range(count))


def test_two_graders_share_a_batch(tmp_path, batch):
    batch(16)
    both = [start(tmp_path, seconds=0.2) for _ in range(2)]
    results = [finish(process) for process in both]
    assert [code for code, _, _ in results] == [0, 0]
    assert authors(tmp_path) == everyone(16)
    assert sorted((tmp_path / "graded").read_text().split()) == everyone(16)
    assert [len(out) for _, out, _ in results] == [16, 16]  # each shows all verdicts


def test_a_killed_grader_s_claims_are_taken_over(tmp_path, batch):
    batch(6)
    first = start(tmp_path, seconds=0.5)
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    finish(first)
    code, out, err = finish(start(tmp_path))
    assert (code, len(out)) == (0, 6), err
    assert authors(tmp_path) == everyone(6)


def test_a_pool_grades_from_the_command_line(tmp_path, batch):
    batch(8)
    code, out, err = finish(start(tmp_path, "--workers", "2", "--json"))
    assert code == 0, err
    assert sorted(json.loads(line)["author"] for line in out) == everyone(8)
    assert authors(tmp_path) == everyone(8)
    assert "8 graded: 8 correct" in err


def test_a_killed_pool_leaves_no_process_and_goes_on_with_the_same_command(tmp_path, batch):
    batch(12, "sleep: 0.1")
    first = start(tmp_path, "--workers", "2")
    first.stdout.readline()
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    tasks = Path(f"/proc/{first.pid}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    assert len(children) >= 2
    first.send_signal(signal.SIGKILL)
    finish(first)
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    code, out, err = finish(start(tmp_path, "--workers", "2"))
    assert (code, len(out)) == (0, 12), err
    assert authors(tmp_path) == everyone(12)
    assert "from the database" in err


def test_an_interrupted_pool_says_how_to_continue(tmp_path, batch):
    batch(12, later="wait for: go on")
    first = start(tmp_path, "--workers", "2")
    first.stdout.readline()
    first.send_signal(signal.SIGINT)
    code, _, err = finish(first)
    assert code == 130
    assert "kept; run the same command to continue" in err
    assert "Traceback" not in err
    (tmp_path / "go on").touch()
    code, out, err = finish(start(tmp_path, "--workers", "2"))
    assert (code, len(out)) == (0, 12), err
    assert authors(tmp_path) == everyone(12)


def test_a_database_that_is_deleted_under_a_pool_loses_no_verdict(tmp_path, batch):
    batch(12, later="wait for: go on")
    first = start(tmp_path, "--workers", "2")
    first.stdout.readline()
    for file in tmp_path.glob("grader.db*"):
        file.unlink()
    (tmp_path / "go on").touch()
    code, out, err = finish(first)
    assert code == 2
    assert "the database was deleted or replaced meanwhile" in err
    assert "grader.db.unsaved.jsonl" in err
    code, again, err = finish(start(tmp_path, "--workers", "2"))
    assert (code, len(again)) == (0, 12), err
    saved = int(re.search(r"saved (\d+) of an earlier run's verdicts", err)[1])
    assert saved in (len(out) + 1, len(out) + 2)  # a line was read before, and a verdict may be in hand
    assert authors(tmp_path) == everyone(12)


def test_a_run_with_a_higher_priority_goes_first(tmp_path, batch):
    def graded(name):
        return [line for line in (tmp_path / "graded").read_text().splitlines() if line.startswith(name)]

    batch(12)
    low = start(tmp_path, seconds=0.4, free=2, gate="low goes on")
    low.stdout.readline()
    (tmp_path / "batch.jsonl").rename(tmp_path / "first.jsonl")
    batch(4, "urgent", author="urgent")
    high = start(tmp_path, "--priority", "1", free=0, gate="high goes on")
    while not graded("urgent"):
        assert high.poll() is None
        time.sleep(0.05)
    (tmp_path / "low goes on").touch()
    assert "a grader with a higher priority is at work" in low.stderr.readline()
    before = graded("author")
    assert len(before) < 12
    (tmp_path / "high goes on").touch()
    code, out, err = finish(high)
    assert (code, len(out)) == (0, 4), err
    assert finish(low)[0] == 0
    lines = (tmp_path / "graded").read_text().splitlines()
    assert [line for line in lines[: lines.index("urgent3")] if line.startswith("author")] == before
    assert graded("author") == [f"author{number}" for number in range(12)]


def cancelled(tmp_path, *arguments):
    command = [sys.executable, "-m", "grader", "cancel", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
    )


def test_an_author_s_gradings_are_cancelled_from_another_process(tmp_path, batch):
    batch(6, "sleep: 1", later="wait for: go on")
    grading = start(tmp_path, "--workers", "1")
    grading.stdout.readline()
    assert "told 1 grader" in cancelled(tmp_path, "--author", "author4").stdout
    (tmp_path / "go on").touch()
    code, _, err = finish(grading)
    assert code == 0, err
    assert authors(tmp_path) == [f"author{number}" for number in (0, 1, 2, 3, 5)]
    assert "5 graded: 5 correct (1 cancelled)" in err


@pytest.mark.parametrize("before", [(), ("sh", "-c", 'trap "" INT; exec "$@"', "sh")], ids=["front", "background"])
def test_a_run_is_cancelled_from_another_process(tmp_path, batch, before):
    """A shell has its background jobs ignore SIGINT."""
    batch(20, "sleep: 1")
    grading = start(tmp_path, "--workers", "1", before=before)
    grading.stdout.readline()
    assert cancelled(tmp_path, "--run", "1").stdout == "told run 1 to end\n"
    code, _, err = finish(grading)
    assert code == 143, err
    assert "cancelled by `grader cancel`" in err
    assert len(authors(tmp_path)) < 20
