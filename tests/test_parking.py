"""Large tensors of a GPU wait there while it has ample memory, else in the host's, where it reads them quickly."""

import pytest
import torch

from grader import device_memory
from grader.models import Device
from grader.remote.launch import Role
from grader.remote.worker import LEAST_BYTES
from grader.stages import parking
from grader.stages.parking import LARGE_BYTES, parked
from grader.workshop import Workshop

COUNT = LARGE_BYTES // 8


class Runtime:
    """In place of the CUDA runtime: what of the host's memory is registered with it."""

    def __init__(self):
        self.registered = {}

    def cudaHostRegister(self, address, nbytes, flags):  # noqa: N802
        self.registered[address] = nbytes
        return 0

    def cudaHostUnregister(self, address):  # noqa: N802
        del self.registered[address]
        return 0


def test_what_is_on_the_host_stays_as_it_is():
    value = torch.zeros(COUNT, dtype=torch.float64)
    assert parked(value, torch.float32) is value


def test_memory_is_registered_for_as_long_as_anybody_reads_it(monkeypatch):
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    waiting = parking._pinned(torch.Size([3, 5]), torch.float64)
    address, rows = waiting.data_ptr(), waiting[1:]
    assert runtime.registered == {address: 3 * 5 * 8}
    del waiting
    assert list(runtime.registered) == [address], "a part of it is still there"
    del rows
    assert not runtime.registered


@pytest.mark.parametrize(("free", "ample"), [(74, False), (75, True)])
def test_ample_is_three_quarters_of_the_memory(monkeypatch, free, ample):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 100))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert device_memory.ample() is ample
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert device_memory.ample() is False


@pytest.mark.gpu
@pytest.mark.parametrize("ample", [True, False])
def test_a_large_tensor_of_a_gpu_waits_rounded(monkeypatch, ample):
    monkeypatch.setattr(device_memory, "ample", lambda: ample)
    value = torch.randn(COUNT, dtype=torch.float64, device="cuda")
    waiting = parked(value, torch.float32)
    assert waiting.is_cuda is ample
    assert waiting.is_pinned() is not ample
    assert torch.equal(waiting.cuda(), value.float())
    assert torch.equal(parked(value).cuda(), value)


@pytest.mark.gpu
def test_a_small_one_stays_there():
    value = torch.randn(COUNT - 1, dtype=torch.float64, device="cuda")
    assert parked(value, torch.float32) is value


@pytest.mark.gpu
@pytest.mark.parametrize("ample", [True, False])
def test_what_is_shared_with_a_worker_has_room_for_more_where_there_is_ample_memory(monkeypatch, ample):
    monkeypatch.setattr(device_memory, "ample", lambda: ample)
    with Workshop() as workshop, workshop.launcher.take(Role.RUN, Device.CUDA) as worker:
        small, large = (worker.region("inbox", "cuda", nbytes).nbytes for nbytes in (1, LARGE_BYTES))
    assert large == (2 * LARGE_BYTES if ample else LARGE_BYTES)
    assert (small == LEAST_BYTES) is ample
