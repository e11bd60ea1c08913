"""A build in the background leaves the cores to work that the grader waits for."""

import os

from grader import protocol as p
from grader.executor.launcher import Role
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Device

LARGEST = 19
"""The kernel keeps a niceness to this, as in a test run that is nice itself."""
PRINTS_NICENESS = """
import os, subprocess, sys
command = [sys.executable, "-c", "import os; print(os.nice(0))"]
inherited = subprocess.run(command, capture_output=True, text=True).stdout
raise RuntimeError(f"{os.nice(0)} and {int(inherited)}")
"""


def test_a_niceness_applies_to_a_worker_and_its_children():
    with Pipeline(GraderOptions(device="cpu")) as grader:
        for niceness in (0, 10):
            with grader.resources.launcher.start(Role.BUILD, Device.CUDA, niceness=niceness) as worker:
                evidence = worker.run([p.Import(source=PRINTS_NICENESS, file_name="x.py", class_name="ModelNew")], 60.0)
            expected = min(os.nice(0) + niceness, LARGEST)
            assert evidence.failure.text == f"{expected} and {expected}"
