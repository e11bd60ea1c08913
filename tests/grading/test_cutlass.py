"""CUTLASS's headers: found by builds, and not writable by them."""

import pytest

from grader import Grader
from grader.machine import toolchain
from tests import expected as cases

SOURCE = """
import os, pathlib, subprocess, torch

HEADER = pathlib.Path(os.environ["CUTLASS_PATH"]) / "include" / "cutlass" / "version.h"
try:
    HEADER.write_text("changed")
except OSError:
    subprocess.run(["c++", "-E", "-x", "c++", "-"], input=b"#include <cutlass/version.h>", check=True)

class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return torch.nn.functional.silu(x * self.scale)
"""


@pytest.fixture
def cutlass(tmp_path, monkeypatch):
    header = tmp_path / "cutlass" / "include" / "cutlass" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define CUTLASS_MAJOR 4")
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path / "cutlass"))
    toolchain.find_toolchain.cache_clear()
    yield header
    toolchain.find_toolchain.cache_clear()


def test_a_build_includes_cutlass_and_cannot_change_it(cutlass, tmp_path):
    problems = [cases.CASES / "problems"]
    with Grader(device="cpu", quick=True, build_cache=tmp_path / "builds", problems=problems) as grader:
        verdict = next(grader.grade_many([("scale_silu", SOURCE)]))
    assert verdict.status == "correct", verdict.diagnoses
    assert cutlass.read_text() == "#define CUTLASS_MAJOR 4"
