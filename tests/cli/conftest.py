"""A command line with a grader that has no workers, and a batch for it."""

import json
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

import grader.cli.grade
from tests import samples
from tests.fakes import FakeGrader

ROOT = Path(__file__).resolve().parents[2]

MAIN = """
import time
from pathlib import Path
import grader.cli.grade
from tests.fakes import FakeGrader

class Held(FakeGrader):
    def grade(self, request):
        while self.graded and not Path({gate!r}).exists():
            time.sleep(0.02)
        return super().grade(request)

grader.cli.grade.open_grader = Held
grader.cli.main()
"""
"""A command line whose gradings but the first wait for the file `gate`."""


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def objects(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs a command in a folder of its own, with a grader that has no workers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grader.cli.grade, "open_grader", FakeGrader)
    monkeypatch.setattr(FakeGrader, "graded", [])
    handler = signal.getsignal(signal.SIGTERM)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["grader", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            grader.cli.main()
        captured = capsys.readouterr()
        return Result(exit.value.code or 0, captured.out, captured.err)

    yield call
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def batch(tmp_path):
    """Three submissions for a problem `scale`: `grade *batch`."""
    problems = tmp_path / "problems"
    problems.mkdir()
    (problems / "scale.py").write_text(samples.PROBLEM_SOURCE)
    for author, status in (("ann", "correct"), ("bob", "wrong_output"), ("eve", "missing_backward")):
        write(tmp_path, author, status)
    return ("grade", tmp_path / "submissions", "--problems", problems)


def write(tmp_path, author, status):
    path = tmp_path / "submissions" / author / "scale.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# status: {status}\n{samples.SUBMISSION_SOURCE}")
    return path


def query(path, text):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()
