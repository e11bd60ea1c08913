"""Errors that follow a rounding are recognised, however small, and float32's own are not."""

import pytest
import torch
from torch.nn.functional import gelu, linear

from grader.grading.compare.expected import Expected
from grader.grading.oracle.roundings import Rounded
from grader.grading.patterns import rounded
from grader.grading.patterns.rounded import MIN_ELEMENTS, rounding_patterns
from grader.grading.resources import Resources
from grader.verdict.models import Device
from tests.expected import problem


@pytest.fixture(scope="module")
def oracle():
    with Resources() as resources:
        yield resources.oracle(problem("linear_gelu_scale"), Device.CPU)


def brief(value):
    return value.half().float()


def same(value):
    return value


def gradients(case, *, of_input=same, of_result=same, of_gradient=same):
    """Gradients by autograd, with changes of the layer's input, of its result, and of that result's gradient."""
    leaves = {name: value.clone().requires_grad_() for name, value in case.state.items()}
    x = case.inputs[0].clone().requires_grad_()
    z = linear(of_input(x), leaves["linear.weight"], leaves["linear.bias"])
    z.register_hook(of_gradient)
    z = z + (of_result(z) - z).detach()
    y = gelu(z) * leaves["scale"]
    found = torch.autograd.grad(y, [x, *leaves.values()], case.cotangents["output"])
    return dict(zip(["input[0]", *leaves], found, strict=True))


def outputs(case, *, of_result=same, of_gelu=same):
    state = case.state
    z = of_result(linear(case.inputs[0], state["linear.weight"], state["linear.bias"]))
    return {"output": of_gelu(gelu(z)) * state["scale"]}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"of_gelu": brief}, "float16 rounding of the results of `gelu`"),
        ({"of_gelu": lambda value: value.bfloat16().float()}, "bfloat16 rounding of the results of `gelu`"),
        ({"of_result": brief}, "float16 rounding of the results of `addmm`"),
    ],
)
def test_an_output_names_the_operator(oracle, changes, what):
    case = oracle.case("full")
    ((_, pattern),) = rounding_patterns(oracle, case, "outputs", outputs(case, **changes)).values()
    assert what in pattern.text
    assert pattern.code == "low_precision"


def test_a_gradient_names_the_operator_of_the_backward(oracle):
    case = oracle.case("full")
    found = rounding_patterns(oracle, case, "gradients", gradients(case, of_gradient=brief))
    assert set(found) == {"input[0]", "linear.weight", "linear.bias"}
    assert all("rounding of the results of `gelu_backward` in the backward" in one.text for _, one in found.values())


@pytest.mark.parametrize("draw", range(4))
def test_float32_in_another_order_follows_no_rounding(oracle, draw):
    case = oracle.case("full", draw=draw)
    order = torch.randperm(case.inputs[0].shape[1])

    def reordered(x, weight):
        return sum(x[:, part] @ weight[:, part].T for part in order.split(7))

    state = case.state
    z = reordered(case.inputs[0], state["linear.weight"]) + state["linear.bias"]
    assert not rounding_patterns(oracle, case, "outputs", {"output": gelu(z) * state["scale"]})
    noisy = gradients(case, of_input=lambda x: x * (1 + 2.0**-22 * torch.randn_like(x)))
    assert not rounding_patterns(oracle, case, "gradients", noisy)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize(("count", "alike"), [(MIN_ELEMENTS - 1, 1.0), (MIN_ELEMENTS, 0.66)])
def test_a_rounding_of_few_elements_or_a_loose_fit_is_found_again_in_another_draw(
    oracle, monkeypatch, again, count, alike
):
    case, asked = oracle.case("full"), []
    few = {"output": torch.zeros(count)}

    def found(_oracle, other, _table, actual):
        return {"output": (alike, "pattern")} if actual is few or again else {}

    def outputs_of(other):
        asked.append(other.seed)
        return {"output": torch.zeros(count)}

    monkeypatch.setattr(rounded, "rounding_patterns", found)
    assert bool(rounded.confirmed_roundings(oracle, case, "outputs", few, outputs_of)) == again
    assert asked
    assert case.seed not in asked


def test_moved_non_smooth_points_are_no_rounding(oracle):
    case = oracle.case("full")
    actual = gradients(case, of_gradient=lambda value: value * (1 + 0.2 * torch.randn_like(value)))
    suspect = rounded._suspect(case.gradients["linear.weight"], actual["linear.weight"])
    assert not any(rounded._of_its_size(suspect, to) for to in rounded.FORMATS)


def rows_times(factors):
    return lambda right: right * factors[:, None]


@pytest.mark.parametrize(
    ("error", "gap", "contradicts"),
    [
        (rows_times(torch.rand(12).double()), lambda right: right * torch.randn(right.shape).double(), True),
        (rows_times(torch.rand(12).double()), rows_times(torch.rand(12).double()), False),
        (lambda right: right * torch.randn(right.shape).double(), rows_times(torch.rand(12).double()), False),
    ],
)
def test_a_factor_of_each_row_is_no_rounding_of_operands(error, gap, contradicts):
    right = torch.randn(12, 16).double()
    suspect = rounded._Suspect(None, right, error(right))
    assert rounded._contradicts(suspect, gap(right)) == contradicts


def test_only_operands_on_a_device_with_tensor_cores_have_tensorfloat32():
    operands, results = Rounded("the operands", {}, False), Rounded("the results of `exp`", {}, True)
    _, half, cut = rounded.FORMATS
    names = [rounded._called(half, rounding, has_tf32=has) for has in (True, False) for rounding in (operands, results)]
    assert names == ["float16 or TensorFloat-32", "float16", "float16", "float16"]
    assert rounded._called(cut, operands, has_tf32=True) == "TensorFloat-32"
    assert rounded._called(cut, operands, has_tf32=False) != "TensorFloat-32"


@pytest.mark.parametrize(("count", "off", "follows"), [(16, 0, True), (16, 1, True), (16, 2, False), (4, 1, False)])
def test_one_of_several_numbers_may_be_rounded_the_other_way(count, off, follows):
    right, gap = (torch.linspace(*ends, count, dtype=torch.float64) for ends in ((1, 3), (-1e-2, 2e-2)))
    error = gap.clone()
    error[:off] += gap.norm() / 4
    suspect = rounded._Suspect(Expected("w", (count,), torch.float32, right), right, error)
    found = rounded._alike(suspect, "w", Rounded("the results of `mul`", {"w": right + gap}, True))
    assert (found > 0.9) == follows
