"""A worker writes to its sandbox's scratch folder, which is not /tmp without mounts."""

import os
import subprocess
import sys

import pytest

from grader.errors import SandboxUnavailable
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from tests import expected as cases

WRITES = """
import os
from pathlib import Path
import torch
from grader.worker.compile import importing as build, toolkit

toolkit.complete_toolkit()
build.import_source("class ModelNew: pass", "mine.py", "ModelNew")
print(os.environ["LIBRARY_PATH"], build.SCRATCH / "submission", build.LEAN_FOLDER, sep="\\n")
"""


def test_a_worker_writes_to_its_scratch_folder(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path), "CUDA_HOME": str(tmp_path)}
    environment.pop("LIBRARY_PATH", None)
    done = subprocess.run([sys.executable, "-c", WRITES], env=environment, capture_output=True, text=True, check=True)
    assert all(line.startswith(f"{tmp_path}/") for line in done.stdout.splitlines())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cuda-links", "submission"]


@pytest.mark.slow
def test_the_weak_sandbox_reaches_a_verdict():
    path, expected = next(e.values for e in cases.listed("honest_plain") if e.values[0].stem == "scale_bias_relu")
    try:
        grader = Pipeline(GraderOptions(device="cpu", sandbox="weak", quick=True))
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    with grader:
        cases.compare(cases.grade(lambda _: grader, path, expected), expected)
