"""Shipped GPU solutions match the reference's outputs and gradients, run on the CPU by an interpreter or as C++."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
EPSILON = torch.finfo(torch.float32).eps
SOURCES = {path.stem: path.read_text() for path in sorted((ROOT / "reference_solutions").glob("*.py"))}
TRITON = [problem for problem, source in SOURCES.items() if "import triton" in source and "load_inline" not in source]
CUDA = [
    "depthwise_conv1d_silu", "embedding_bag_sum", "embedding_mean_linear_cross_entropy", "group_norm_silu",
    "linear_recurrence", "scaled_masked_softmax",
]  # fmt: skip
"""Solutions that `cuda_on_cpu.h` has enough of CUDA for."""


def run(variant, problems):
    """Errors by problem and tensor: the interpreter must be chosen before triton is imported."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.solutions_on_cpu", variant, *problems]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {line["problem"]: line["tensors"] for line in map(json.loads, done.stdout.splitlines())}


def check(tensors):
    """By the grader's rule for a tensor's norm; the interpreter cuts bfloat16 off instead of rounding it."""
    for name, (error, baseline, norm) in tensors.items():
        assert error <= 4 * baseline + 64 * EPSILON * norm, name


@pytest.fixture(scope="module", params=["odd", pytest.param("batch1", marks=[pytest.mark.slow, pytest.mark.deep])])
def interpreted(request):
    return run(request.param, TRITON)


def test_every_triton_solution_is_run(interpreted):
    assert list(interpreted) == TRITON


@pytest.mark.parametrize("problem", TRITON)
def test_triton_matches(interpreted, problem):
    check(interpreted[problem])


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("problem", CUDA)
@pytest.mark.parametrize("variant", ["small", "odd", "batch1"])
def test_cuda_matches(problem, variant, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path.parent))
    check(run(variant, [problem])[problem])
