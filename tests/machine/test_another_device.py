"""A device is added by one backend: its name becomes an option, and submissions are graded, timed and ranked on it."""

import json
import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parents[1] / "cases"

COMMAND = """
import sys
from grader.machine.backends import register
from grader.machine.backends.cpu import CpuBackend
from grader.verdict.models import Device


class SecondCpu(CpuBackend):
    device = Device.add("cpu2")


register(SecondCpu())
from grader.cli import app

app(sys.argv[1:])
"""
"""The command line beside a second CPU, which is the first under another name."""


def test_one_backend_adds_a_device(tmp_path):
    """In processes of their own, because a device stays."""
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def command(*arguments):
        words = [sys.executable, script, *arguments, "--device", "cpu2", "--db", tmp_path / "grader.db"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    given = "--problems", CASES / "problems", "--problem", "two_linears", "--quick", "--json"
    verdict = json.loads(command("grade", CASES / "honest_plain" / "two_linears.py", *given))
    assert (verdict["device"], verdict["status"], verdict["timing"]["status"]) == ("cpu2", "correct", "passed")
    ranked = json.loads(command("leaderboard", "--all", "--format", "json"))
    assert "cpu2" in json.dumps(ranked)
