"""Times with TensorFloat-32 as PyTorch ships or off on both sides, as seen by the model's own flags."""

import pytest

from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Problem, Submission

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(64, 64)]
"""

GPU_OBSERVER = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32, "TensorFloat-32 is on"
        return x * 2
"""


CPU_OBSERVER = GPU_OBSERVER.replace("not torch.backends.cudnn", "torch.backends.cudnn").replace("is on", "is off")


CONVOLUTION = MODEL.replace("x * 2", "nn.functional.conv2d(x, x[:4, :, :3, :3])").replace("64, 64", "8, 4, 20, 20")


def body(problem):
    """The last line of a problem's forward."""
    return next(line.strip() for line in problem.splitlines() if "return x" in line or "return nn" in line)


def observed(tmp_path, observer, device, strict, source=MODEL):
    problem = Problem(id="double", path=tmp_path / "double.py", source=source)
    problem.path.write_text(source)
    observer = Submission(author="ann", problem_id="double", path="x", source=observer)
    with Pipeline(GraderOptions(device=device, quick=True, strict_fp32=strict)) as grader:
        verdict = grader.grade(grader.request(problem, observer))
    assert verdict.settings.strict_fp32 is strict
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("strict", [True, False])
def test_on_a_cpu_the_flag_is_the_default_in_every_call(tmp_path, strict):
    """It has no effect there, and would tell timed calls from others."""
    verdict = observed(tmp_path, CPU_OBSERVER, "cpu", strict)
    assert verdict.status == "correct", verdict.diagnoses


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "strict", "status"),
    [(CONVOLUTION, True, "correct"), (CONVOLUTION, False, "runtime_error"), (MODEL, False, "correct")],
)
def test_the_flag_in_timed_calls(tmp_path, problem, strict, status):
    """It is on where the reference has convolutions."""
    verdict = observed(tmp_path, GPU_OBSERVER.replace("return x * 2", body(problem)), "cuda", strict, problem)
    assert verdict.status == status, verdict.diagnoses
    if status == "runtime_error":
        assert verdict.diagnoses[0].stage == "timing", "judged with it off, timed with it on"
