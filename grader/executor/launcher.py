"""Starts workers with their limits, and keeps spare ones that are ready before they are needed."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum

from grader.errors import SandboxError
from grader.executor import worker_template
from grader.executor.client import WorkerClient
from grader.executor.worker_process import WorkerLost, WorkerOptions
from grader.executor.worker_template import DEFAULT_ARCHITECTURE, WorkerTemplate
from grader.machine.backends import accelerators, backend
from grader.machine.host import build_cores
from grader.sandbox import Limits, Sandbox, gpu_devices
from grader.verdict.models import Device

GIB = 1 << 30
WORKER_LIFETIME_SECONDS = 3600.0
"""A backstop: every job has a shorter limit of its own."""
STARTERS = 2
"""Workers that start at the same time: a submission's and a reference's."""


class Role(StrEnum):
    """The purpose of a worker, which decides whether it sees the GPU."""

    BUILD = "build"
    """Compiles a CUDA submission; sees no GPU."""
    RUN = "run"
    """Runs a submission."""
    REFERENCE = "reference"
    """Runs the reference."""


_ahead: list[Launcher] = []


def start_ahead(sandbox: Sandbox, device: str) -> None:
    """Start workers for a submission and its reference, whose launcher `take` then returns.

    Nothing here imports torch, so that they start while this process does. `auto` is the GPU if there is one.
    """
    found = _architectures() if gpu_devices() else {}
    chosen = next(iter(found), Device.CPU) if device == "auto" else Device(device)
    _ahead.append(Launcher(sandbox, worker_template.take(), architecture=next(iter(found.values()), None)))
    for role in (Role.RUN, Role.REFERENCE):
        _ahead[0].prepare(role, chosen)


def take(sandbox: Sandbox) -> Launcher:
    """Return the launcher that was started ahead, or a new one if that has been taken."""
    if _ahead:
        return _ahead.pop()
    return Launcher(sandbox, worker_template.take(), architecture=next(iter(_architectures().values()), None))


def _architectures() -> dict[Device, str]:
    """The architecture of each accelerator that can be used."""
    found = {device: backend(device).architecture() for device in accelerators()}
    return {device: architecture for device, architecture in found.items() if architecture is not None}


def close_ahead() -> None:
    """Close a launcher that was started ahead and not taken."""
    while _ahead:
        _ahead.pop().close()


class Launcher:
    """Owns the spare workers and the template that all workers are copied from."""

    def __init__(self, sandbox: Sandbox, worker_template: WorkerTemplate, *, architecture: str | None) -> None:
        """The launcher owns the template, and closes it."""
        self.sandbox, self.worker_template = sandbox, worker_template
        self._architecture = architecture or DEFAULT_ARCHITECTURE
        self._spares: defaultdict[tuple[Role, Device], deque[Future[WorkerClient]]] = defaultdict(deque)
        self._starter = ThreadPoolExecutor(STARTERS, "worker-start")
        self._leaving: list[WorkerClient] = []
        self._has_given = False
        """Whether a worker was taken: those that start later do so in the background, and load libraries too."""
        self.spares_ended = 0
        """Spare workers that ended before they got a job, which no submission can cause."""

    def take(self, role: Role, device: Device, *, more_to_come: bool = False) -> WorkerClient:
        """Return a worker that the caller owns; with `more_to_come` the next one starts in the background."""
        self.prepare(role, device)
        while (worker := self._spares[role, device].popleft().result()).ended:
            self.spares_ended += 1
            worker.close()
            self.prepare(role, device)
        self._has_given = True
        if more_to_come:
            self.prepare(role, device)
        return worker

    def prepare(self, role: Role, device: Device, count: int = 1) -> None:
        """Start spare workers in the background, with their GPU contexts, until there are `count`."""
        spares = self._spares[role, device]
        while len(spares) < count:
            spares.append(self._starter.submit(self._start_warm, role, device))

    @contextmanager
    def quiet(self, device: Device) -> Iterator[None]:
        """Keep spare workers from disturbing a measurement.

        On a CPU they are stopped; on a GPU they have all started. A GPU context that is created meanwhile slows a call
        of 16 us by some percent for as long as both exist.
        """
        with ExitStack() as paused:
            for spares in self._spares.values():
                for spare in list(spares):
                    try:
                        if backend(device).pauses_spares:
                            paused.enter_context(spare.result().paused())
                        else:
                            spare.result().wait_ready()
                    except (WorkerLost, SandboxError):
                        spares.remove(spare)
                        _close(spare)
            yield

    @contextmanager
    def dismissing(self, worker: WorkerClient) -> Iterator[WorkerClient]:
        """End the worker after the block, without waiting for it."""
        try:
            yield worker
        finally:
            self.dismiss(worker)

    def dismiss(self, worker: WorkerClient) -> None:
        """End a worker without waiting for it."""
        worker.dismiss()
        ended = [other for other in self._leaving if other.ended]
        self._leaving = [worker, *(other for other in self._leaving if other not in ended)]
        for other in ended:
            other.close()

    @property
    def leaving(self) -> bool:
        """A dismissed worker has not ended yet, and holds memory of the GPU."""
        return not all(worker.ended for worker in self._leaving)

    def dismiss_spares(self) -> None:
        """End all spare workers without waiting for them."""
        for spares in self._spares.values():
            for spare in spares:
                with suppress(SandboxError):
                    self.dismiss(spare.result())
        self._spares.clear()

    def close(self) -> None:
        """End all spare and dismissed workers, and close the template."""
        self.dismiss_spares()
        for worker in self._leaving:
            worker.close()
        self._starter.shutdown()
        self.worker_template.close()

    def start(self, role: Role, device: Device, *, niceness: int = 0) -> WorkerClient:
        """Start a worker, which does not listen yet. Safe in any thread."""
        gpu = backend(device).gpu and role is not Role.BUILD
        options = WorkerOptions(
            limits=limits(),
            role=role,
            gpu=gpu,
            # A reference at full size needs all memory that it can get.
            roomy=backend(device).ample_memory if role is Role.RUN else WorkerOptions.roomy,
            environment=self.worker_template.environment,
            readonly=self.worker_template.readonly,
            hidden=self.worker_template.hidden,
            niceness=niceness,
            architecture=self._architecture,
            cores=build_cores() if role is Role.BUILD else WorkerOptions.cores,
        )
        return WorkerClient(
            self.sandbox, options, self.worker_template.zygote(gpu=gpu) if self.sandbox.copies else None
        )

    def _start_warm(self, role: Role, device: Device) -> WorkerClient:
        worker = self.start(role, device)
        worker.warm_up(libraries=self._has_given, counts=role is Role.REFERENCE)
        return worker


def _close(spare: Future[WorkerClient]) -> None:
    with suppress(SandboxError):
        spare.result().close()


def limits() -> Limits:
    """Return limits for one nvcc run of a torch extension (3 GB) and the largest CPU problem."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits(
        wall_seconds=WORKER_LIFETIME_SECONDS,
        memory_bytes=min(16 * GIB, int(physical * 0.6)),
        scratch_bytes=2 * GIB,
        shared_memory_bytes=GIB,
        process_count=512,
        file_bytes=GIB,
        output_bytes=64 << 10,
    )
