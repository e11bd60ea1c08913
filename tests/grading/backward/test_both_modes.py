"""Each experiment finds a fault that only one of two equal modes has, and says which."""

import pytest

from grader.catalog.problem_module import FULL
from grader.grading import plan
from grader.grading.backward.experiments import experiments
from grader.grading.resources import Resources
from grader.verdict.models import Device
from tests import expected as cases

SOURCE = """
import torch
from torch import nn

KEPT = {}


class TwoHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, hit):
        hidden = x * scale
        ctx.hit, ctx.done = hit, False
        KEPT["last"] = x, scale, hidden
        ctx.save_for_backward(x, scale, hidden)
        return torch.sin(hidden), hidden * hidden

    @staticmethod
    def backward(ctx, g, h):
        x, scale, hidden = ctx.saved_tensors
        hit = ctx.hit
        #BEFORE
        common = g * torch.cos(hidden) + 2 * h * hidden
        grad_x, grad_scale = common * scale, (common * x).sum(0)
        #AFTER
        return grad_x, grad_scale, None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return TwoHeads.apply(x, self.scale, getattr(self, "tra" + "ining") is HIT)
"""
FAULTS = {
    "saved_tensor_mutated": ("AFTER", "scale.data.add_(0.5)"),
    "accumulation_broken": ("AFTER", "grad_scale = KEPT.setdefault('sum', grad_scale.clone()).copy_(grad_scale)"),
    "ignores_grad_output": ("AFTER", "grad_x = grad_x * (common.abs().max() > 1e-6)"),
    "assumes_contiguous_grad_output": ("BEFORE", "g = g if g.is_contiguous() else 0.5 * g"),
    "stale_saved_state": ("BEFORE", "x, scale, hidden = KEPT['last']"),
    "ignores_needs_input_grad": ("AFTER", "grad_x = grad_x * ctx.needs_input_grad[1]"),
    "undefined_grad_output": ("AFTER", "grad_x = grad_x * bool(h.any())"),
}


@pytest.fixture(scope="module")
def resources():
    with Resources() as opened:
        yield opened


def found(resources, code, source):
    oracle = resources.oracle(cases.problem("two_heads"), Device.CPU)
    path = cases.CASES / "backward_undefined_grad_output" / "honest.py"
    submission = cases.submission(path, "two_heads").model_copy(update={"source": source})
    (asked,) = plan.make(oracle, variant=FULL, quick=True).experiments
    one = next(one for one in experiments("post-check", "train") if one.code == code)
    with resources.candidate(submission, Device.CPU) as candidate:
        return one.run(candidate, asked)


@pytest.mark.parametrize("hit", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("code", FAULTS)
def test_an_experiment_finds_a_fault_of_one_mode(resources, code, hit):
    place, statement = FAULTS[code]
    source = SOURCE.replace("HIT", str(hit)).replace(f"#{place}", f"if hit: {statement}")
    diagnosis = found(resources, code, source)
    assert diagnosis is not None
    assert diagnosis.code == code
    assert diagnosis.message.startswith("in eval(), ") is not hit, diagnosis.message


@pytest.mark.parametrize("code", FAULTS)
def test_an_experiment_finds_nothing_without_one(resources, code):
    assert found(resources, code, SOURCE.replace("HIT", "True")) is None
