"""A baseline error of TensorFloat-32 on a CPU, whose library never rounds operands."""

import json
from functools import partial

import pytest
import torch

from grader.grading.compare import tolerance
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.run_costs import Pace
from grader.grading.oracle.track import track
from grader.grading.oracle.values import cut_each
from grader.grading.resources import Resources
from grader.machine.backends import backend
from grader.verdict.models import Device
from grader.verdict.precision import TF32_BITS
from tests.expected import CASES, compare, grade, graders, problem


@pytest.fixture(scope="module")
def oracle():
    with Resources() as resources:
        yield resources.oracle(problem("linear_gelu_scale"), Device.CPU)


def shortened(plain, bits):
    state = dict(zip(plain.state, cut_each(plain.state.values(), bits), strict=True))
    return Pass(MODEL, cut_each(plain.inputs, bits), state)


@pytest.mark.parametrize(("bits", "right"), [(TF32_BITS, True), (8, False)])
def test_operands_that_are_cut_off_are_right_where_tensorfloat32_is(oracle, bits, right):
    """Tensor cores cut off what was not rounded. Eight bits are those of bfloat16."""
    case = oracle.case("full")
    plain = Pass(MODEL, case.inputs, case.state)
    ask, pace = partial(oracle.ask, case), Pace(oracle.budget.product_seconds, oracle.clock)
    _, trackers = track(ask, plain, oracle.traits(case), oracle.device, pace=pace, tf32=True)
    (expected,) = trackers.expected("outputs", lambda _: case.outputs["output"].reduction_length).values()
    found = next(ask([shortened(plain, bits)])).outputs["output"]
    assert (tolerance.check(expected, found).status == "passed") is right
    assert tolerance.check(case.outputs["output"], found).status == "failed", "in float32"
    noisy = found + 0.01 * torch.randn_like(found)
    assert tolerance.check(expected, noisy).status == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["honest", "fault_bf16"])
def test_cases_are_judged_so_on_a_cpu_that_is_taken_for_a_device_with_it(monkeypatch, name):
    """Every check of a grading rounds operands, of outputs and gradients."""
    monkeypatch.setattr(type(backend(Device.CPU)), "tf32", True)
    folder = CASES / "precision_tf32"
    expected = json.loads((folder / "expected.json").read_text())[f"{name}.py"] | {"device": "cpu"}
    with graders(rounds=1) as get:
        compare(grade(get, folder / f"{name}.py", expected), expected)
