"""This machine: the cores of this process, the device memory in use, and a verdict's environment."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Iterator

from grader._version import __version__
from grader.machine.backends import DeviceBackend, backend
from grader.machine.toolchain import Toolchain
from grader.sandbox import Sandbox
from grader.verdict.models import Device, Environment
from grader.verdict.value import Value

MAX_CPU_THREADS = 8
"""More threads speed up few operators and make CPU times depend on what else the machine does."""


class CoreShare(Value):
    """The cores of one grading process among several on a machine."""

    own: tuple[int, ...] | None = None
    """Cores for timed calls; None: all."""
    builds: tuple[int, ...]
    """Cores for builds of all processes."""
    sharers: int
    """Processes that build there."""
    threads: int
    """CPU threads of each worker, as if it had all cores, so that its verdicts compare with others."""


_share: list[CoreShare] = []
"""Empty until `share_cores`."""


def share_cores(share: CoreShare) -> None:
    """Keep this process to its own cores, and its builds to those of all sharers."""
    _share[:] = [share]
    if share.own is not None:
        os.sched_setaffinity(0, share.own)


def build_cores() -> frozenset[int]:
    """The cores of a worker that builds; empty if it uses those of this process."""
    return frozenset(_share[0].builds) if _share else frozenset()


def builds_at_a_time() -> int:
    """The number of builds that this process runs at a time: one keeps two cores busy."""
    cores = len(_share[0].builds) / _share[0].sharers if _share else len(os.sched_getaffinity(0))
    return max(1, int(cores / 2))


def thread_count() -> int:
    """CPU threads of each worker: the cores that this process may use, at most MAX_CPU_THREADS."""
    return _share[0].threads if _share else min(MAX_CPU_THREADS, len(os.sched_getaffinity(0)))


@contextlib.contextmanager
def on_one_thread() -> Iterator[None]:
    """Run PyTorch on one thread, for many short operations.

    Threads that wait for each other would occupy cores that others need.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def environment(device: Device, toolchain: Toolchain, sandbox: Sandbox) -> Environment:
    """The environment of a verdict on this device; an unavailable device is called `none`."""
    import torch

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
        host=platform.node() or None,
        device_id=own.device_id(),
    )


INTERVAL_SECONDS = 0.01
"""Seconds between samples; allocators keep memory for longer than this."""


class PeakMemory:
    """Samples the device's used memory in the background; a context manager.

    `baseline_bytes` were in use by others before; another program that grows meanwhile is counted in. Nothing is
    sampled while `shared()` is true: while a worker that was graded before has not given its memory back.
    """

    def __init__(self, backend: DeviceBackend, baseline_bytes: int | None, shared: Callable[[], bool]) -> None:
        self.peak_bytes = None if baseline_bytes is None else 0
        """None on a device whose memory is the host's."""
        self._backend, self._shared = backend, shared
        self._baseline_bytes = baseline_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        if self.peak_bytes is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.peak_bytes is not None:
            self._stop.set()
            self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(INTERVAL_SECONDS):
            if not self._shared():
                used = (self._backend.used_bytes() or 0) - (self._baseline_bytes or 0)
                self.peak_bytes = max(self.peak_bytes or 0, used)
