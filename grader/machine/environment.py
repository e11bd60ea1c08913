"""This machine, as a verdict remembers it."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from grader._version import __version__
from grader.machine.cpu_threads import thread_count
from grader.machine.toolchain import Toolchain
from grader.sandbox import Sandbox
from grader.verdict.models import Device, Environment


def environment(device: Device, toolchain: Toolchain, sandbox: Sandbox) -> Environment:
    """What a verdict on this device is reached with. A device that is not here is called `none`."""
    on_gpu = device is Device.CUDA and torch.cuda.is_available()
    return Environment(
        device=device,
        device_name=torch.cuda.get_device_name() if on_gpu else "none" if device is Device.CUDA else _cpu_name(),
        torch_version=torch.__version__,
        cuda_version=toolchain.nvcc_version,
        driver_version=_driver_version() if on_gpu else None,
        compiler=toolchain.cxx_version or "none",
        python_version=platform.python_version(),
        grader_version=__version__,
        sandbox=sandbox.name,
        sandbox_layers=sandbox.layers,
        thread_count=thread_count(),
    )


def architecture() -> str | None:
    """The GPU's compute capability, `9.0`; None without one."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"{major}.{minor}"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _driver_version() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None
