"""Large tensors of a GPU wait in the host's memory, which that GPU reads at its bus's speed."""

import pytest
import torch

from grader.grading.oracle import host_memory
from grader.grading.oracle.host_memory import LARGE_BYTES, parked

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
    waiting = host_memory._pinned(torch.Size([3, 5]), torch.float64)
    address, rows = waiting.data_ptr(), waiting[1:]
    assert runtime.registered == {address: 3 * 5 * 8}
    del waiting
    assert list(runtime.registered) == [address], "a part of it is still there"
    del rows
    assert not runtime.registered


@pytest.mark.gpu
def test_a_large_tensor_of_a_gpu_waits_pinned_and_rounded():
    value = torch.randn(COUNT, dtype=torch.float64, device="cuda")
    waiting = parked(value, torch.float32)
    assert waiting.is_pinned()
    assert torch.equal(waiting.cuda(), value.float())
    assert torch.equal(parked(value).cuda(), value)


@pytest.mark.gpu
def test_a_small_one_stays_there():
    value = torch.randn(COUNT - 1, dtype=torch.float64, device="cuda")
    assert parked(value, torch.float32) is value
