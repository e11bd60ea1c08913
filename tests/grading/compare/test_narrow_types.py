"""Tensors of 16 bits: honest rounding passes, faults near the size of one rounding do not."""

import pytest
import torch

from grader.grading.compare import tolerance
from grader.grading.oracle.evaluation import Evaluation
from grader.grading.oracle.trackers import Trackers

TYPES = [torch.bfloat16, torch.float16]


def expected(eager, exact):
    """What `Trackers` expects of an output, from an eager run and the exact values."""
    trackers = Trackers(Evaluation({"y": eager}, {}, {}), Evaluation({"y": exact}, {}, {}), has_float64=True)
    return trackers.expected("outputs", lambda _: 1.0)["y"]


def passes(expectation, candidate):
    return tolerance.check(expectation, candidate).status == "passed"


class Layer:
    """gelu(x w + b), in a type, with the float64 values of the rounded operands."""

    def __init__(self, dtype, rows=64, inner=200, columns=48):
        made = torch.Generator().manual_seed(3)
        draw = [torch.randn(*shape, generator=made) for shape in ((rows, inner), (inner, columns), (columns,))]
        self.x, self.w, self.b = (value.to(dtype) for value in (draw[0], draw[1] / inner**0.5, draw[2] / inner**0.5))
        self.dtype = dtype
        self.expected = expected(self.eager(), self.run(torch.float64))

    def run(self, dtype, x=None, w=None, b=None):
        x, w, b = (value.to(dtype) for value in (self.x, self.w, self.b))
        return torch.nn.functional.gelu(x @ w + b)

    def eager(self):
        z = (self.x.float() @ self.w.float()).to(self.dtype)
        return torch.nn.functional.gelu(z + self.b)


@pytest.fixture(params=TYPES, ids=str, scope="module")
def layer(request):
    return Layer(request.param)


def test_more_and_equally_precise_results_pass(layer):
    assert passes(layer.expected, layer.run(torch.float32).to(layer.dtype))
    assert passes(layer.expected, layer.eager())
    halves = layer.x[:, :90].float() @ layer.w[:90].float(), layer.x[:, 90:].float() @ layer.w[90:].float()
    z = sum(halves).to(layer.dtype) + layer.b
    assert passes(layer.expected, torch.nn.functional.gelu(z.float()).to(layer.dtype))


@pytest.mark.parametrize(
    "fault",
    [
        lambda layer: layer.run(torch.float32) * 1.01,
        lambda layer: layer.run(torch.float32) * 0.99,
        lambda layer: torch.nn.functional.gelu(layer.x.float() @ layer.w.float()),
        lambda layer: torch.where(torch.arange(48) == 47, 0.0, layer.run(torch.float32)),
    ],
    ids=["scaled up", "scaled down", "no bias", "last column"],
)
def test_faults_fail(layer, fault):
    assert not passes(layer.expected, fault(layer).to(layer.dtype))


def test_a_sum_that_is_kept_in_the_type_fails(layer):
    total = torch.zeros(64, 48, dtype=layer.dtype)
    for k in range(200):
        total = total + layer.x[:, k, None] * layer.w[None, k]
    assert not passes(layer.expected, torch.nn.functional.gelu(total + layer.b))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_single_number_may_be_off_by_two_roundings(dtype):
    exact = torch.tensor(1.3, dtype=torch.float64)
    one = expected(exact.to(dtype), exact)
    spacing = torch.finfo(dtype).eps
    assert passes(one, exact.to(dtype) + spacing)
    assert not passes(one, exact.to(dtype) + 4 * spacing)


def test_float32_keeps_its_tolerance():
    exact = torch.randn(1000, dtype=torch.float64)
    expectation = expected(exact.float(), exact)
    assert expectation.error_along == 0.0
    assert not passes(expectation, (exact * (1 + 1e-5)).float())
