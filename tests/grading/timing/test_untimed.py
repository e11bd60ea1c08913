"""A timed call that is wrong because of its values is told from one that is wrong because it is timed."""

import pytest

from grader.grading.backward.experiments import ExperimentCases
from grader.grading.resources import Resources
from grader.grading.timing.draws import Draws
from grader.grading.timing.untimed import fault_of_values, faults_of_draws
from grader.verdict.models import Device
from tests import samples

MODEL = """
import torch
from torch import nn

class {name}(nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.randn(16, 16)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("2 * x + (x[0, 0] != {first})", ["output_wrong"]),
        ("2 * x + (x - x.detach()) * (x[0, 0] != {first})", ["grad_scaled"]),
        ("2 * x + (x[0, 0] == {first})", []),
        ("2 * x", []),
    ],
    ids=["forward", "backward", "wrong before", "right"],
)
def test_what_another_draw_shows_is_no_fault_of_timing_unless_the_first_is_wrong_too(expression, found):
    problem = samples.problem(source=MODEL.format(name="Model", expression="2 * x"))
    with Resources() as resources:
        oracle = resources.oracle(problem, Device.CPU)
        case = oracle.case("full")
        expression = expression.format(first=float(case.inputs[0][0, 0]))
        submission = samples.submission(source=MODEL.format(name="ModelNew", expression=expression))
        with resources.candidate(submission, Device.CPU) as candidate:
            diagnoses = faults_of_draws(candidate, oracle, case, [ExperimentCases.of_one(case, 10.0)])
    assert [diagnosis.code for diagnosis in diagnoses] == found
    assert all(one.message.startswith("on another draw of inputs and parameters") for one in diagnoses)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("2 * x + (x[0, 0] == {timed})", "output_wrong"),
        ("2 * x + (x[0, 0] == {timed}) + (x[0, 0] == {first})", None),
        ("2 * x", None),
    ],
    ids=["wrong for its values", "wrong before", "right"],
)
def test_what_a_timed_calls_own_values_show_is_no_fault_of_timing(expression, found):
    problem = samples.problem(source=MODEL.format(name="Model", expression="2 * x"))
    with Resources() as resources:
        oracle = resources.oracle(problem, Device.CPU)
        case = oracle.case("full")
        source = Draws(oracle, case, few_bits=False).source(training=True, keep=True)
        first, timed = (float(inputs[0][0, 0]) for inputs in (case.inputs, source.values().inputs))
        expression = expression.format(first=first, timed=timed)
        submission = samples.submission(source=MODEL.format(name="ModelNew", expression=expression))
        with resources.candidate(submission, Device.CPU) as candidate:
            wrong = fault_of_values(candidate, oracle, case, source)
    assert (wrong and wrong.code) == found
