"""Spacers are drawn anew for each sample, and nothing but them is held; a GPU's call and its claim are one job."""

from types import SimpleNamespace

import pytest
import torch

from grader import protocol as p
from grader.executor import TimelineJob
from grader.grading.timing.calls import spacers
from grader.verdict.models import Device
from grader.worker.timing.spacing import Spacers


@pytest.mark.parametrize("device", [Device.CPU, Device.CUDA])
def test_sizes_are_drawn_anew(device):
    drawn = {spacers(device) for _ in range(20)}
    assert len(drawn) > 10
    assert all(size > 0 for sizes in drawn for size in sizes)


def test_a_claim_that_fails_is_a_step_after_those_of_the_call():
    failure = p.Failure(step=0, kind="exception", type_name="RuntimeError", text="an illegal memory access")
    claim = p.Evidence(id=2, failure=failure, peak_device_bytes=7)
    worker = SimpleNamespace(run=lambda steps, seconds: claim)
    call = p.Evidence(id=1, results=(p.Done(), p.Done()), peak_device_bytes=5)
    evidence = TimelineJob(worker, start="queued", drop=None)._with_claim(call, 60.0)
    assert evidence.results == call.results
    assert (evidence.failure.step, evidence.peak_device_bytes) == (2, 7)


@pytest.mark.gpu
def test_a_gpus_memory_does_not_fill_up():
    def call():
        small, large = (torch.ones(count, device="cuda") for count in (256, 4 << 20))
        return small, large

    held, device = Spacers(), torch.device("cuda")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    call()
    reserved = []
    for _ in range(20):
        held.renew((8 << 20, 3 << 20), device)
        found = torch.cuda.memory_reserved()
        call()
        assert torch.cuda.memory_reserved() == found, "a queued call would have had to wait for pages"
        reserved.append(found)
    assert max(reserved[10:]) == max(reserved[:10])
    held.clear()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before


@pytest.mark.gpu
def test_pages_are_ready_where_each_side_gives_its_memory_back():
    held, device = Spacers(), torch.device("cuda")
    torch.cuda.empty_cache()
    for turn in range(4):
        held.renew((8 << 20, 3 << 20), device)
        found = torch.cuda.memory_reserved()
        torch.ones(64 << 20, device=device)
        assert not turn or torch.cuda.memory_reserved() == found
        held.clear()
        torch.cuda.empty_cache()
