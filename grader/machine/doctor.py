"""Checks what this machine offers to the grader, with a remedy for everything that is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grader.errors import GraderError, UserError
from grader.machine.toolchain import find_cuda_home, find_cxx, find_toolchain, pypi_requirement, torch_cuda_version

State = Literal["ok", "missing", "limited"]
"""`missing`: nothing can be graded without it. `limited`: some submissions cannot, or with less protection."""


@dataclass(frozen=True)
class Finding:
    """The state of one requirement."""

    subject: str
    state: State
    detail: str


def examine() -> Iterator[Finding]:
    """The state of every requirement. Raises nothing."""
    yield Finding("python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield _torch()
    yield _ninja()
    yield _python_headers()
    yield from _compilers()
    yield from _gpus()
    yield from _sandbox()


def can_isolate(findings: list[Finding]) -> bool:
    """Whether submissions can run in a sandbox."""
    return not any(finding.subject == "sandbox" and finding.state == "missing" for finding in findings)


def _torch() -> Finding:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("torch", "missing", "not installed; install the grader again")
    return Finding("torch", "ok", f"{version}, CUDA {torch_cuda_version() or 'not built in'}")


def _ninja() -> Finding:
    beside_python = Path(sys.executable).parent / "ninja"
    path = shutil.which("ninja") or (str(beside_python) if beside_python.exists() else None)
    if path is None:
        return Finding(
            "ninja", "limited", "not found; extensions cannot be compiled without it; install the grader again"
        )
    return Finding("ninja", "ok", path)


def _python_headers() -> Finding:
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return Finding(
            "Python.h", "limited", f"not in {header.parent}; install it (Debian: apt-get install python3-dev)"
        )
    return Finding("Python.h", "ok", str(header))


def _compilers() -> Iterator[Finding]:
    cxx = find_cxx()
    if cxx is None:
        yield Finding("C++ compiler", "limited", "no c++ on PATH; install g++ (Debian: apt-get install g++) or set CXX")
    try:
        cuda_home, toolchain = find_cuda_home(), find_toolchain()
    except UserError as error:
        yield Finding("nvcc", "limited", str(error))
        return
    if cxx is not None:
        yield Finding("C++ compiler", "ok", f"{toolchain.cxx_version}, {cxx}")
    if cuda_home is None:
        requirement = pypi_requirement()
        remedy = f"pip install '{requirement}', or set CUDA_HOME" if requirement else "install a torch built with CUDA"
        yield Finding("nvcc", "limited", f"no CUDA toolkit that fits torch; {remedy}")
    else:
        yield Finding("nvcc", "ok", f"{toolchain.nvcc_version}, {cuda_home}")


def _gpus() -> Iterator[Finding]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield Finding("GPU", "limited", f"none ({error}); CUDA submissions are compiled and get not_run")
        return
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory_gib = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) / (1 << 30)
            yield Finding("GPU", "ok", f"{pynvml.nvmlDeviceGetName(handle)}, {memory_gib:.0f} GiB, driver {driver}")
    except pynvml.NVMLError as error:
        yield Finding("GPU", "limited", f"present, but unusable: {error}")
    finally:
        pynvml.nvmlShutdown()


def _sandbox() -> Iterator[Finding]:
    from grader import sandbox

    try:
        chosen = sandbox.choose("auto")
    except GraderError as error:
        yield Finding("sandbox", "missing", str(error))
        return
    yield Finding("sandbox", "ok", chosen.name)
    for layer in sandbox.probe():
        yield Finding(f"  {layer.name}", "ok" if layer.active else "limited", layer.detail)
    if chosen.copies:
        yield Finding("  copied workers", "ok", "workers are copies of a process that has imported torch")
    else:
        yield Finding(
            "  copied workers", "limited", "no process can join a sandbox here, so each worker imports torch (2 s)"
        )
