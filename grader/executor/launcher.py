"""Starts workers: what they may see, how much they may use, and a spare one that is ready before it is needed."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum

from grader.errors import SandboxError
from grader.executor.client import WorkerClient, WorkerLost, WorkerOptions
from grader.executor.worker_template import DEFAULT_ARCHITECTURE, WorkerTemplate
from grader.machine.backends import backend
from grader.sandbox import Limits, Sandbox
from grader.verdict.models import Device

GIB = 1 << 30
WORKER_LIFETIME_SECONDS = 3600.0
"""Backstop only: every job has a limit of its own."""


class Role(StrEnum):
    """Why a worker is started; decides whether it sees the GPU."""

    BUILD = "build"
    """Compiles a CUDA submission; no GPU devices."""
    RUN = "run"
    REFERENCE = "reference"


class Launcher:
    """Owns spare workers, and what all are copied from; a context manager."""

    def __init__(self, sandbox: Sandbox, worker_template: WorkerTemplate, *, architecture: str | None) -> None:
        """Closes the worker_template, too."""
        self.sandbox, self.worker_template = sandbox, worker_template
        self._architecture = architecture or DEFAULT_ARCHITECTURE
        self._spares: defaultdict[tuple[Role, Device], deque[Future[WorkerClient]]] = defaultdict(deque)
        self._starter = ThreadPoolExecutor(1, "worker-start")
        self._leaving: list[WorkerClient] = []

    def take(self, role: Role, device: Device, *, more_to_come: bool = False) -> WorkerClient:
        """A worker of our own from now on; with `more_to_come` the next one starts in the background."""
        self.prepare(role, device)
        while (worker := self._spares[role, device].popleft().result()).ended:  # no submission's doing
            worker.close()
            self.prepare(role, device)
        if more_to_come:
            self.prepare(role, device)
        return worker

    def prepare(self, role: Role, device: Device, count: int = 1) -> None:
        """Have so many that are ready or start in the background, their contexts on the GPU too."""
        spares = self._spares[role, device]
        while len(spares) < count:
            spares.append(self._starter.submit(self._start_warm, role, device))

    @contextmanager
    def quiet(self, device: Device) -> Iterator[None]:
        """No spare disturbs what is measured meanwhile: on a CPU they stand still, on a GPU they have started.

        There a context that is made beside costs a call of 16 us some percent, for as long as both are there.
        """
        with ExitStack() as standing:
            for spares in self._spares.values():
                for spare in list(spares):
                    try:
                        if backend(device).pauses_spares:
                            standing.enter_context(spare.result().paused())
                        else:
                            spare.result().wait_ready()
                    except (WorkerLost, SandboxError):
                        spares.remove(spare)
                        _close(spare)
            yield

    @contextmanager
    def dismissing(self, worker: WorkerClient) -> Iterator[WorkerClient]:
        """As the worker itself would be a context manager, but that its end is not waited for."""
        try:
            yield worker
        finally:
            worker.dismiss()
            gone = [other for other in self._leaving if other.ended]
            self._leaving = [worker, *(other for other in self._leaving if other not in gone)]
            for other in gone:
                other.close()

    @property
    def leaving(self) -> bool:
        """One that was dismissed is still there, and holds memory of the GPU."""
        return not all(worker.ended for worker in self._leaving)

    def close(self) -> None:
        for worker in self._leaving:
            worker.close()
        for spares in self._spares.values():
            for spare in spares:
                _close(spare)
        self._spares.clear()
        self._starter.shutdown()
        self.worker_template.close()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, role: Role, device: Device, *, niceness: int = 0) -> WorkerClient:
        """A new worker, which does not listen yet. Safe in any thread."""
        gpu = device is Device.CUDA and role is not Role.BUILD
        options = WorkerOptions(
            limits=limits(),
            gpu=gpu,
            roomy=role is Role.RUN,  # at full size a reference takes more than all else, and all that it can have
            environment=self.worker_template.environment,
            readonly=self.worker_template.readonly,
            hidden=self.worker_template.hidden,
            niceness=niceness,
            architecture=self._architecture,
        )
        return WorkerClient(
            self.sandbox, options, self.worker_template.zygote(gpu=gpu) if self.sandbox.copies else None
        )

    def _start_warm(self, role: Role, device: Device) -> WorkerClient:
        worker = self.start(role, device)
        worker.warm_up(counts=role is Role.REFERENCE)
        return worker


def _close(spare: Future[WorkerClient]) -> None:
    with suppress(SandboxError):
        spare.result().close()


def limits() -> Limits:
    """Sized for one nvcc run of a torch extension (3 GB) and the largest CPU problem."""
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
