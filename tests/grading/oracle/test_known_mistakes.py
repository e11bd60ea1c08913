"""References with a mistake in them, and that they leave the right ones as they were."""

import pytest

from grader.grading.oracle import known_mistakes
from grader.grading.resources import Resources
from grader.verdict.models import Device
from tests.expected import problem


@pytest.fixture(scope="module")
def resources():
    with Resources() as resources:
        yield resources


def test_state_that_no_grad_protects_stays_without_a_graph(resources):
    """Else the backward of the next question would follow the buffer into the last one's graph."""
    oracle = resources.oracle(problem("moving_teacher"), Device.CPU)
    case = oracle.case("full")
    for _ in range(2):
        found = known_mistakes.gradients(oracle, case, "no_no_grad")
        assert {"input[1]", "teacher.weight", "teacher.bias"} <= set(found), "what no_grad() cuts off"
    assert known_mistakes.gradients(oracle, case, "none") == {}
