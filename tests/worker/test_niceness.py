"""A build that nobody waits for yet leaves the cores to what is waited for."""

import os

from grader import protocol as p
from grader.executor.launcher import Role
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Device

TELLS = """
import os, subprocess, sys
told = subprocess.run([sys.executable, "-c", "import os; print(os.nice(0))"], capture_output=True, text=True).stdout
raise RuntimeError(f"{os.nice(0)} and {int(told)}")
"""


def test_a_niceness_is_that_of_a_worker_and_of_all_that_it_starts():
    with Pipeline(GraderOptions(device="cpu")) as grader:
        for niceness in (0, 10):
            with grader.resources.launcher.start(Role.BUILD, Device.CUDA, niceness=niceness) as worker:
                evidence = worker.run([p.Import(source=TELLS, file_name="x.py", class_name="ModelNew")], 60.0)
            expected = os.nice(0) + niceness
            assert evidence.failure.text == f"{expected} and {expected}"
