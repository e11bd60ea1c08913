"""CPU times are steady: memory is reused, and threads do not share a core."""

import os

import pytest
import torch

from grader import protocol as p
from grader.executor.launcher import Role
from grader.grading.pipeline import Pipeline
from grader.grading.timing.pair import _out_of_the_way
from grader.options import GraderOptions
from grader.verdict.models import Device

TOUCHED_AGAIN = """
import resource, torch

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [torch.empty(16 << 20, dtype=torch.uint8).fill_(1) for _ in range(60)]  # more than is there from the start
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

once, later = faults(), [faults() for _ in range(12)][-10:]
assert once > 100 and sum(later) < once, (once, later)

class ModelNew: pass
"""


@pytest.mark.slow
def test_a_worker_uses_memory_again_that_was_freed():
    with (
        Pipeline(GraderOptions(device="cpu", quick=True)) as grader,
        grader.resources.launcher.take(Role.RUN, Device.CPU) as worker,
    ):
        step = p.Import(source=TOUCHED_AGAIN, file_name="x.py", class_name="ModelNew")
        evidence = worker.run([step], 60.0)
        assert evidence.failure is None, evidence.failure.text


@pytest.mark.parametrize("device", Device)
def test_the_referee_has_one_thread_while_it_times_and_all_afterwards(device):
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    with _out_of_the_way(device):
        assert torch.get_num_threads() == 1
        assert os.sched_getaffinity(0) == ({min(cores)} if device is Device.CPU else cores)
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == (threads, cores)


def test_the_referees_threads_do_not_spin():
    assert os.environ["GOMP_SPINCOUNT"] == "1000"
