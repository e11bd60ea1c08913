"""Devices as the rest of the grader sees them."""

import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
import torch

from grader.errors import UserError
from grader.machine import backends
from grader.machine.backends import DeviceBackend, backend, cuda, default_device, require, select_index
from grader.verdict.models import Device


@pytest.mark.parametrize("device", Device)
def test_a_device_is_a_module_with_all_that_the_interface_asks_for(device):
    own = backend(device)
    assert own.device is device
    members = [name for name in (*DeviceBackend.__annotations__, *vars(DeviceBackend)) if not name.startswith("_")]
    assert [name for name in members if not hasattr(own, name)] == []
    own_answers = ("available", "select", "device_name", "flush_bytes")  # the host's answers would be wrong here
    assert [name for name in own_answers if getattr(type(own), name) is getattr(DeviceBackend, name)] == []


def test_each_module_of_a_backend_is_a_device():
    modules = {path.stem for path in Path(backends.__file__).parent.glob("[a-z]*.py")}
    assert {device.value for device in Device} == modules


@pytest.mark.parametrize("available", [True, False])
def test_submissions_for_any_device_go_to_the_accelerator_where_there_is_one(monkeypatch, available):
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    assert default_device() is (Device.CUDA if available else Device.CPU)


def test_a_device_that_is_not_here_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="--device cuda: no CUDA device is here; leave it out, or use --device cpu"):
        require("cuda")
    require("auto")
    require("cpu")


@pytest.mark.parametrize(("shown", "index", "left"), [(None, 2, "2"), ("5,7", 1, "7"), (None, 0, None), ("5", 0, "5")])
def test_an_index_leaves_one_gpu_visible_here_and_to_workers(monkeypatch, shown, index, left):
    monkeypatch.setattr(cuda, "_device_count", lambda: 4)
    monkeypatch.setattr(cuda, "BACKEND", own := cuda.CudaBackend())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown or "")
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    for _ in range(2):  # the command line and the pipeline both see to it
        select_index("auto", index)
        assert own.worker_environment().get("CUDA_VISIBLE_DEVICES") == left


@pytest.mark.parametrize("given", [None, "expandable_segments:True"])
def test_large_blocks_stay_whole_in_the_grader_alone(monkeypatch, given):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", given or "")
    if given is None:
        monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    select_index("auto", 0)
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == (given or "max_split_size_mb:256")
    assert "PYTORCH_CUDA_ALLOC_CONF" not in backends.worker_environment()


def test_a_driver_starts_beside_an_import_and_is_no_trouble_where_there_is_none():
    program = """
import sys
from grader.machine.backends import accelerators, backend
for device in accelerators():
    backend(device).start_driver()
assert "torch" not in sys.modules
import torch
print(torch.cuda.is_available(), *(torch.ones(1, device="cuda").tolist() if torch.cuda.is_available() else ()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == (["True", "1.0"] if torch.cuda.is_available() else ["False"])


@pytest.mark.gpu
def test_a_small_tensor_keeps_no_large_block():
    program = """
from grader.machine.backends import select_index
select_index("cuda", 0)
import torch
large = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
del large
small = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.empty_cache()
print(torch.cuda.memory_reserved() >> 20)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


@pytest.mark.parametrize(("device", "index"), [("cuda", 4), ("cpu", 1), ("auto", 4)])
def test_an_index_beyond_the_devices_is_refused(monkeypatch, device, index):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(cuda, "_device_count", lambda: 4)
    with pytest.raises(UserError, match=f"--device-index {index}: "):
        select_index(device, index)


def test_another_device_in_the_same_process_is_refused(monkeypatch):
    """CUDA shows a process the devices that were visible when it began."""
    monkeypatch.setattr(cuda, "_device_count", lambda: 4)
    monkeypatch.setattr(cuda, "BACKEND", cuda.CudaBackend())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    select_index("auto", 2)
    for index in (0, 1):
        with pytest.raises(UserError, match=f"grades on device 2; start another for device {index}"):
            select_index("auto", index)


def test_memory_that_nvml_does_not_tell_is_unknown(monkeypatch):
    def unknown():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    monkeypatch.setattr(cuda, "_nvml_device", unknown)
    assert cuda.CudaBackend().used_bytes() is None


@pytest.mark.parametrize(("free", "ample"), [(74, False), (75, True)])
def test_ample_is_three_quarters_of_the_memory(monkeypatch, free, ample):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 100))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert cuda.BACKEND.ample_memory() is ample
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert cuda.BACKEND.ample_memory() is False
