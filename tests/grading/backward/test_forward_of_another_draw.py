"""A forward that is wrong in another draw, for which a probe had no time, is blamed on no backward."""

from grader.grading import plan
from grader.verdict.models import Status
from grader.verdict.stages import StageStatus
from tests import expected as cases

KEEPS_THE_FIRST_SCALE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = self.scale.detach().clone()
        return torch.relu(x * (self.kept + self.scale - self.scale.detach()) + self.bias)
"""


def test_it_is_an_output_that_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "_probed", lambda *_: ())
    path = tmp_path / "keeps_the_first_scale.py"
    path.write_text(KEEPS_THE_FIRST_SCALE)
    with cases.graders(rounds=1) as graders:
        verdict = cases.grade(graders, path, {"problem": "scale_bias_relu", "device": "cpu"})
    (wrong,) = (one for one in verdict.diagnoses if one.severity == "error")
    assert (wrong.code, wrong.stage) == ("output_wrong", "forward")
    assert wrong.message.startswith("on another draw of inputs and parameters, output is off by")
    assert "`scale`" in wrong.message
    assert verdict.status is Status.WRONG_OUTPUT
    assert verdict.forward.status is StageStatus.FAILED
