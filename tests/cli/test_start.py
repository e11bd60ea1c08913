"""What a command imports before it does anything, which is how long it takes to start."""

import os
import subprocess
import sys

import pytest

from db import Store
from grader.cli._ahead import start_ahead
from grader.cli._commands import COMMANDS, _Commands
from grader.executor import worker_template
from tests.cli.conftest import ROOT
from tests.samples import PROBLEM_SOURCE

IMPORTED = """
import atexit, sys
sys.argv = ["grader", *sys.argv[1:]]
atexit.register(lambda: print("imported:", *sorted(name for name in sys.modules if not name.startswith("_"))))
from grader.__main__ import main
main()
"""
HEAVY = {"torch", "numpy", "sqlmodel", "sqlalchemy", "alembic", "rich", "fastapi", "pydantic", "jinja2"}


def imported(*arguments, **environment):
    command = [sys.executable, "-c", IMPORTED, *map(str, arguments)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.splitlines()[-1].removeprefix("imported: ").split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_the_command_table_alone(option):
    names = imported(option)
    assert {name for name in names if name.split(".")[0] in ("grader", "db")} == {
        "grader",
        "grader.__main__",
        "grader._version",
        "grader.cli",
        "grader.cli._ahead",
        "grader.cli._commands",
        "grader.ending",
        "grader.errors",
        "grader.machine",
        "grader.machine.collector",
    }
    assert not names & HEAVY


def test_a_command_s_help_imports_no_torch():
    assert "torch" not in imported("grade", "--help")


def test_known_problems_are_listed_without_torch_and_without_the_database(tmp_path):
    problem, instead = tmp_path / "problems" / "scale.py", tmp_path / "instead"
    problem.parent.mkdir()
    instead.mkdir()
    problem.write_text(PROBLEM_SOURCE)
    (instead / "torch.py").write_text("raise SystemExit('torch is imported')")
    arguments = ("problems", "--problems", problem.parent)
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "GRADER_PROBLEMS": str(tmp_path / "none.json")}
    assert "torch" in imported(*arguments, **environment)
    assert not imported(*arguments, **environment) & {"torch", "sqlmodel", "sqlalchemy", "alembic"}
    problem.write_text(PROBLEM_SOURCE + "\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        imported(*arguments, **environment, PYTHONPATH=f"{instead}:{ROOT}")
    assert "torch is imported" in raised.value.stderr


@pytest.mark.parametrize(
    ("arguments", "devices"),
    [
        (["grade", "kernel.py"], ["auto"]),
        (["grade", "kernel.py", "--device", "cpu", "--quick"], ["cpu"]),
        (["profile", "--device=cuda", "kernel.py"], ["cuda"]),
        (["grade", "--help"], []),
        (["grade", "kernel.py", "--gpus", "all"], []),
        (["grade", "kernel.py", "--sandbox=weak"], []),
        (["leaderboard"], []),
        ([], []),
    ],
)
def test_workers_start_before_a_command_that_grades_in_this_process(monkeypatch, arguments, devices):
    started = []
    monkeypatch.setattr(worker_template, "start_ahead", started.append)
    start_ahead(arguments)
    assert started == devices


def test_a_current_database_is_opened_without_alembic(tmp_path):
    path = tmp_path / "graded.db"
    Store.open(path).close()
    assert not imported("leaderboard", "--db", path) & {"alembic", "torch"}


AHEAD = """
import sys, time
from pathlib import Path
from grader.cli._ahead import start_ahead
from grader.sandbox import _choose

start_ahead(["grade", "kernel.py", "--device", "cpu"])
assert "torch" not in sys.modules
end = time.monotonic() + 60
while not (_choose._tried.cache_info().currsize and "libtorch_python" in Path("/proc/self/maps").read_text()):
    assert time.monotonic() < end
    time.sleep(0.01)
assert "torch" not in sys.modules
import torch
"""


def test_the_sandbox_is_tried_and_libraries_are_loaded_beside_the_imports():
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", AHEAD], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("typed", "offered"), [("grader lea", "leaderboard"), ("grader problems --f", "--format")])
def test_a_shell_completes_commands_and_options(typed, offered):
    code = "import sys; sys.argv = ['grader']; import grader.cli; grader.cli.main()"
    asked = {"_GRADER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **asked}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == [offered], done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_their_help_begins_with(name):
    command = _Commands()[name]
    assert command.name == name
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name][1]
