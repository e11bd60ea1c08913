"""Starts workers: what they may see, how much they may use, and a spare one that is ready before it is needed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from threading import Lock

import grader
from grader import allocator
from grader.errors import SandboxError
from grader.models import Device
from grader.remote.worker import MODULE, RemoteWorker, WorkerLost, WorkerOptions
from grader.sandbox import Limits, Sandbox, Zygote
from grader.toolchain import Toolchain

GIB = 1 << 30
WORKER_LIFETIME_SECONDS = 3600.0
"""Backstop only: every job has a limit of its own."""
DEFAULT_ARCHITECTURE = "9.0"
"""What CUDA extensions are compiled for where no GPU says otherwise."""


class Role(StrEnum):
    """Why a worker is started; decides whether it sees the GPU."""

    BUILD = "build"
    """Compiles a CUDA submission; no GPU devices."""
    RUN = "run"
    REFERENCE = "reference"


class Launcher:
    """Owns the workers' view of the file system; a context manager."""

    def __init__(self, sandbox: Sandbox, toolchain: Toolchain, *, thread_count: int, architecture: str | None) -> None:
        self.sandbox = sandbox
        self._toolchain = toolchain
        self._thread_count = thread_count
        self._architecture = architecture or DEFAULT_ARCHITECTURE
        self._stage = _new_stage()
        self._zygotes: dict[bool, Zygote] = {}
        self._zygotes_lock = Lock()
        self._spares: defaultdict[tuple[Role, Device], deque[Future[RemoteWorker]]] = defaultdict(deque)
        self._starter = ThreadPoolExecutor(1, "worker-start")
        self._leaving: list[RemoteWorker] = []
        self._copy_worker_source()

    def take(self, role: Role, device: Device, *, more_to_come: bool = False) -> RemoteWorker:
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
                        if device is Device.CPU:
                            standing.enter_context(spare.result().paused())
                        else:
                            spare.result().wait_ready()
                    except (WorkerLost, SandboxError):
                        spares.remove(spare)
                        _close(spare)
            yield

    @contextmanager
    def dismissing(self, worker: RemoteWorker) -> Iterator[RemoteWorker]:
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
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()
        shutil.rmtree(self._stage, ignore_errors=True)

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, role: Role, device: Device, *, niceness: int = 0) -> RemoteWorker:
        """A new worker, which does not listen yet. Safe in any thread."""
        gpu = device is Device.CUDA and role is not Role.BUILD
        home = self._toolchain.cuda_home
        options = WorkerOptions(
            limits=limits(),
            gpu=gpu,
            environment=self._environment(),
            readonly=(self._stage, *package_folders(), *([home] if home else [])),
            hidden=our_folders(),
            niceness=niceness,
        )
        return RemoteWorker(self.sandbox, options, self._zygote(gpu=gpu) if self.sandbox.copies else None)

    def _start_warm(self, role: Role, device: Device) -> RemoteWorker:
        worker = self.start(role, device)
        worker.warm_up(counts=role is Role.REFERENCE)
        return worker

    def _zygote(self, *, gpu: bool) -> Zygote:
        """The process with torch imported that all workers are copies of; on a GPU they have another environment."""
        with self._zygotes_lock:
            zygote = self._zygotes.get(gpu)
            if zygote is not None and zygote.ended:
                zygote.close()
                zygote = None
            if zygote is None:
                zygote = self._zygotes[gpu] = Zygote(MODULE, self._environment(), gpu=gpu)
            return zygote

    def _environment(self) -> dict[str, str]:
        environment = {
            "PYTHONPATH": os.pathsep.join(map(str, (self._stage, *package_folders()))),
            "OMP_NUM_THREADS": str(self._thread_count),
            "GLIBC_TUNABLES": allocator.TUNABLES,
            # What was freed fits whatever comes next: no more is held than was needed at once.
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "MAX_JOBS": str(os.cpu_count() or 1),
            "TORCH_CUDA_ARCH_LIST": self._architecture,
        }
        if self._toolchain.cuda_home is not None:
            environment["CUDA_HOME"] = str(self._toolchain.cuda_home)
        return environment

    def _copy_worker_source(self) -> None:
        """Only what the worker imports: nothing else of ours is visible inside."""
        source, target = Path(grader.__file__).parent, self._stage / "grader"
        target.mkdir()
        (target / "__init__.py").touch()
        shutil.copytree(source / "protocol", target / "protocol", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(source / "worker", target / "worker", ignore=shutil.ignore_patterns("__pycache__"))
        for path in [self._stage, *self._stage.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def _close(spare: Future[RemoteWorker]) -> None:
    with suppress(SandboxError):
        spare.result().close()


def _new_stage() -> Path:
    """A folder of our own. Those that killed graders left are removed: nobody else would."""
    # With the pid namespace, since a grader in another container may share the folder, but not our pids.
    prefix = f"grader-{Path('/proc/self/ns/pid').stat().st_ino}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if not Path("/proc", left.name.removeprefix(prefix).partition("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


@cache
def package_folders() -> tuple[Path, ...]:
    """Where the worker's imports lie, as far as that is outside the interpreter's own folders."""
    prefixes = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    found = []
    for name in (
        "torch",
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_inspection",
        "typing_extensions",
        "numpy",
    ):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin).resolve()
        folder = origin.parent if spec.submodule_search_locations is None else origin.parent.parent
        if folder not in found and not any(folder.is_relative_to(prefix) for prefix in prefixes):
            found.append(folder)
    return tuple(found)


def our_folders() -> tuple[Path, ...]:
    """The grader's own files, where they lie in a tree that the sandbox shows, such as an installed wheel's."""
    package = Path(grader.__file__).parent
    siblings = ("db", "problems", "reference_solutions", "submissions", "tests")
    return tuple(path for path in (package, *(package.parent / name for name in siblings)) if path.is_dir())


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
