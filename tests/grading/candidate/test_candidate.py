"""A submission's jobs."""

from grader.grading.candidate.parts import forward_step
from grader.grading.resources import Resources
from grader.verdict.models import Device
from tests import samples

COUNTS = """
import weakref

import torch
from torch import nn


class Model(nn.Module):
    made = []

    def forward(self, x):
        assert not any(output() is not None for output in self.made), "an output of an earlier job is left"
        result = x * 2
        self.made.append(weakref.ref(result))
        return result


def get_inputs():
    return [torch.rand(2, 8)]


def get_init_inputs():
    return []
"""


def test_a_job_begins_without_what_the_last_one_left():
    """On a GPU, the outputs of one experiment's forwards would take the memory of the next ones."""
    problem, itself = samples.problem(source=COUNTS), samples.submission(source=COUNTS.replace("Model", "ModelNew"))
    with Resources() as resources, resources.candidate(itself, Device.CPU) as candidate:
        case = resources.oracle(problem, Device.CPU).case("full")
        for tape in ("first", "second"):
            job = candidate.script(case)
            job.put_inputs("a", case.inputs)
            job.step(forward_step(case, "a", tape=tape))
            assert candidate.attempt(job, "forward", "a forward").failure is None
