"""Shipped Triton solutions match the reference's outputs and gradients, run on the CPU by Triton's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
EPSILON = torch.finfo(torch.float32).eps
PROBLEMS = sorted(
    path.stem for path in (ROOT / "reference_solutions").glob("*.py") if "import triton" in path.read_text()
)


@pytest.fixture(scope="module", params=["odd", pytest.param("batch1", marks=[pytest.mark.slow, pytest.mark.deep])])
def interpreted(request):
    """Errors by problem and tensor: the interpreter must be chosen before triton is imported."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.solutions_on_cpu", request.param, *PROBLEMS]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {line["problem"]: line["tensors"] for line in map(json.loads, done.stdout.splitlines())}


def test_every_solution_is_run(interpreted):
    assert list(interpreted) == PROBLEMS


@pytest.mark.parametrize("problem", PROBLEMS)
def test_outputs_and_gradients_match(interpreted, problem):
    """By the grader's rule for a tensor's norm; the interpreter cuts bfloat16 off instead of rounding it."""
    for name, (error, baseline, norm) in interpreted[problem].items():
        assert error <= 4 * baseline + 64 * EPSILON * norm, name
