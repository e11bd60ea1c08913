"""Gradients in TensorFloat-32 are judged by its rounding, and not by the non-smooth points that it crosses."""

from dataclasses import replace

import pytest
import torch

from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.values import cut_each
from grader.grading.resources import Resources
from grader.grading.timing import shipped_flags
from grader.grading.timing.calls import Call
from grader.grading.timing.comparison import Comparison
from grader.grading.timing.draws import Draw, Source
from grader.grading.timing.judge import judge_timing
from grader.grading.timing.stopping import QUICK
from grader.machine.backends import backend
from grader.verdict.models import Device, Problem, Submission

ACTIVATIONS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3)
        self.scale = nn.Parameter(torch.randn(16, 1, 1))

    def forward(self, x):
        return {act}(self.conv(x) * self.scale)

def get_inputs():
    return [torch.randn(8, 16, 66, 66)]
"""
LEAKY = ACTIVATIONS.format(act="nn.functional.leaky_relu")
SUBMISSION = '''
import torch
from torch import nn

def rounded(value):
    bits = value.contiguous().view(torch.int32)
    return ((bits + (1 << 12)) & -(1 << 13)).view(torch.float32)

class Conv(torch.autograd.Function):
    """In TensorFloat-32, as a device with the flag on would."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return nn.functional.conv2d(rounded(x), rounded(weight), bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = nn.grad.conv2d_input(x.shape, rounded(weight), rounded(g))
        grad_weight = nn.grad.conv2d_weight(rounded(x), weight.shape, rounded(g))
        grad_weight = grad_weight + {error} * grad_weight.square().mean().sqrt() * torch.randn_like(grad_weight)
        return grad_x, grad_weight, g.sum((0, 2, 3))

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3)
        self.scale = nn.Parameter(torch.randn(16, 1, 1))

    def forward(self, x):
        {forward}
'''
PLAIN = "return nn.functional.leaky_relu(Conv.apply(x, self.conv.weight, self.conv.bias) * self.scale)"
FOLDED = (
    "return nn.functional.leaky_relu("
    "Conv.apply(x, self.conv.weight * (self.scale * 0.7).unsqueeze(1), self.conv.bias * self.scale.flatten() * 0.7)"
    " / 0.7)"
)


@pytest.fixture(scope="module")
def resources():
    with Resources() as opened:
        yield opened


@pytest.fixture
def with_tf32(monkeypatch):
    """A CPU that is taken for a device with TensorFloat-32, which its library never chooses."""
    device = backend(Device.CPU)
    monkeypatch.setattr(type(device), "tf32", True)


def written(tmp_path, name, source):
    path = tmp_path / f"{name}.py"
    path.write_text(source)
    return Problem(id=name, path=path, source=source)


def compared(oracle, error, *, timed=True, before=None):
    """The diagnosis of a call in TensorFloat-32 whose gradients are off by `error`, relative to their rms."""
    case = oracle.case("full")
    state = shipped_flags.state_of_few_bits(case.state, ())
    draw = Draw(shipped_flags.inputs_of_few_bits(case.inputs), state, case.cotangents, few_bits=True)
    plain = Pass(MODEL, draw.inputs, draw.state, draw.cotangents, case.wrt, case.training)
    theirs = replace(plain, substitute="tf32", **(before or {}))
    calls = []
    for run, off in zip(oracle.ask(case, [plain, theirs]), (0.0, error), strict=True):
        sealed = {f"output:t:{name}": value for name, value in run.outputs.items()}
        for name, value in run.gradients.items():
            sealed[f"grad:t:{name}"] = value + off * value.square().mean().sqrt() * torch.randn_like(value)
        calls.append(Call({"backward": None}, sealed))
    operands = {name: name for name in case.wrt}
    wrong = Comparison(oracle, case, operands, {}, tf32=True, timed=timed).difference_of(Source.of(draw), *calls)
    return wrong and wrong.diagnosis


@pytest.mark.parametrize("act", ["nn.functional.leaky_relu", "nn.functional.relu", "torch.abs"])
def test_an_error_of_one_percent_is_seen_behind_non_smooth_points(resources, with_tf32, tmp_path, act):
    oracle = resources.oracle(written(tmp_path, f"conv_{act[-4:]}", ACTIVATIONS.format(act=act)), Device.CPU)
    case = oracle.case("full")
    assert shipped_flags.shipped_error(oracle, case, tf32=True)["conv.weight"] > 0.0025, "what an error hides behind"
    assert compared(oracle, 0.0) is None
    wrong = compared(oracle, 0.01)
    assert wrong is not None
    assert wrong.code == "timed_gradient_wrong"
    assert "cudnn.allow_tf32" in wrong.message


def test_a_forward_that_rounds_all_the_same_is_judged_as_one(resources, with_tf32, tmp_path):
    oracle = resources.oracle(written(tmp_path, "conv", LEAKY), Device.CPU)
    case = oracle.case("full")
    errors = shipped_flags.errors(oracle, case)
    size = float(case.outputs["output"].norm)
    assert errors.forward_is_exact({"output": (1e-6 * size, size)})
    assert not errors.forward_is_exact({"output": (2e-4 * size, size)})
    averaged = replace(errors, outputs={"output": 2e-5})
    assert not averaged.forward_is_exact({"output": (1e-6 * size, size)}), "there, rounding would not show"


@pytest.mark.slow
@pytest.mark.parametrize(("error", "forward", "right"), [(0.0, PLAIN, True), (0.0, FOLDED, True), (0.01, PLAIN, False)])
def test_timed_calls_are_judged_by_it(resources, with_tf32, tmp_path, error, forward, right):
    # With few large scales, the error of the bias varies from draw to draw by more than the bound from one draw allows.
    alike = "1 + torch.rand(16, 1, 1)"
    problem = written(tmp_path, "conv_timed", LEAKY.replace("torch.randn(16, 1, 1)", alike))
    source = SUBMISSION.format(error=error, forward=forward)
    submission = Submission(author="ann", problem_id=problem.id, path="x", source=source)
    oracle = resources.oracle(problem, Device.CPU)
    with resources.candidate(submission, Device.CPU) as candidate:
        judged = judge_timing(candidate, oracle, oracle.case("full"), QUICK, pace_apart=0.0)
    wrong = [diagnosis.code for diagnosis in judged.diagnoses if diagnosis.severity == "error"]
    assert wrong == ([] if right else ["timed_gradient_wrong"]), judged.diagnoses


@pytest.mark.slow
def test_other_sizes_are_asked_with_the_flags_of_timed_calls(resources, with_tf32, tmp_path):
    """The fault is at one size; the path may be one that runs under these flags only."""
    sizes = """
def get_variants():
    return {"small": (lambda: [], lambda: [torch.randn(2, 16, 18, 18)]),
            "odd": (lambda: [], lambda: [torch.randn(2, 16, 19, 21)])}
"""
    problem = written(tmp_path, "conv_sizes", LEAKY + sizes)
    oracle = resources.oracle(problem, Device.CPU)
    others = [oracle.case(name) for name in ("small", "odd")]
    for error, right in (("0.0", True), ("(0.02 if x.shape[3] == 21 else 0)", False)):
        source = SUBMISSION.format(error=error, forward=PLAIN)
        submission = Submission(author="ann", problem_id=problem.id, path="x", source=source)
        with resources.candidate(submission, Device.CPU) as candidate:
            judged = judge_timing(candidate, oracle, oracle.case("full"), QUICK, pace_apart=0.0, others=others)
        wrong = [diagnosis for diagnosis in judged.diagnoses if diagnosis.severity == "error"]
        assert not wrong if right else "variant odd" in wrong[0].message, judged.diagnoses


def test_without_convolutions_timed_calls_have_the_flags_of_all_others(resources, with_tf32, tmp_path):
    for name, act, expected in (("conv", "torch.abs", True), ("none", "torch.abs", False)):
        source = ACTIVATIONS.format(act=act)
        source = source if expected else source.replace("self.conv(x)", "x").replace("66, 66", "6, 6")
        oracle = resources.oracle(written(tmp_path, f"flags_{name}", source), Device.CPU)
        assert shipped_flags.matter(oracle, oracle.case("full")) is expected


def test_cut_values_keep_sign_and_range():
    values = torch.tensor([1 - 2**-20, -1.9999, 2**-130, 3.0, 0.0, float("inf")])
    for bits in (5, 11):
        (short,) = cut_each([values], bits)
        assert bool((short.abs() <= values.abs()).all())
        assert torch.equal(short.sign(), values.sign())
        assert torch.equal(*cut_each([short], bits), short)
    one, other = cut_each(torch.randn(2, 1000).unbind(), 5)
    products = one.double() * other.double()
    (short,) = cut_each([products.float()], 11)
    assert torch.equal(short.double(), products)
    assert cut_each([torch.arange(3)], 5)[0].tolist() == [0, 1, 2]
