"""Grades the submissions of this folder with `python -m pytest`; CUDA and Triton are skipped without a GPU."""

from pathlib import Path

import pytest
import torch

from grader import Grader, Status

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted((HERE / "submissions").rglob("*.py")), ids=lambda path: path.stem)
def test_submission(path):
    needs_gpu = path.stem.endswith(("__cuda", "__triton"))
    if needs_gpu and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    with Grader(device="cuda" if needs_gpu else "cpu", quick=True, problems=[HERE / "problems"]) as grader:
        verdict = grader.grade(path)
    assert verdict.status is Status.CORRECT, verdict.diagnoses
