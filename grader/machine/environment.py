"""This machine, as a verdict remembers it."""

from __future__ import annotations

import platform

import torch

from grader._version import __version__
from grader.machine.backends import backend
from grader.machine.cpu_threads import thread_count
from grader.machine.toolchain import Toolchain
from grader.sandbox import Sandbox
from grader.verdict.models import Device, Environment


def environment(device: Device, toolchain: Toolchain, sandbox: Sandbox) -> Environment:
    """The environment of a verdict on this device; an unavailable device is called `none`."""
    own = backend(device)
    return Environment(
        device=device,
        device_name=own.device_name(),
        torch_version=torch.__version__,
        cuda_version=toolchain.nvcc_version,
        driver_version=own.driver_version() if own.available() else None,
        compiler=toolchain.cxx_version or "none",
        python_version=platform.python_version(),
        grader_version=__version__,
        sandbox=sandbox.name,
        sandbox_layers=sandbox.layers,
        thread_count=thread_count(),
    )
