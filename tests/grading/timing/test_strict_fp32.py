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

OBSERVER = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32, "TensorFloat-32 is on"
        return x * 2
"""


@pytest.mark.slow
@pytest.mark.parametrize(("strict", "status"), [(True, "correct"), (False, "runtime_error")])
def test_the_flag_in_timed_calls(tmp_path, strict, status):
    problem = Problem(id="double", path=tmp_path / "double.py", source=MODEL)
    problem.path.write_text(MODEL)
    observer = Submission(author="ann", problem_id="double", path="x", source=OBSERVER)
    with Pipeline(GraderOptions(device="cpu", quick=True, strict_fp32=strict)) as grader:
        verdict = grader.grade(grader.request(problem, observer))
    assert verdict.settings.strict_fp32 is strict
    assert verdict.status == status, verdict.diagnoses
    if not strict:
        assert verdict.diagnoses[0].stage == "timing", "judged with it off, timed with it on"
