"""What workers are copied from, and what of the file system is theirs.

Needs no torch, so that `start_ahead` can have a zygote import that while it is imported here; whoever starts workers
takes it then.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Self

import grader
from grader.machine import allocator
from grader.machine.backends import worker_environment
from grader.machine.cpu_threads import thread_count
from grader.machine.toolchain import Toolchain, find_toolchain
from grader.sandbox import Sandbox, Zygote, gpu_devices

MODULE = "grader.worker.main"
"""What a worker runs; its `main` is told the descriptor of its socket, how nice to be and what GPU to compile for."""
DEFAULT_ARCHITECTURE = "9.0"
"""What CUDA extensions are compiled for where no GPU says otherwise."""
_ahead: list[WorkerTemplate] = []


class WorkerTemplate:
    """Owns a folder and zygotes; a context manager."""

    def __init__(self, toolchain: Toolchain) -> None:
        stage, home = _new_stage(), toolchain.cuda_home
        _copy_worker_source(stage)
        self._stage = stage
        self.readonly = (stage, *_package_folders(), *([home] if home else []))
        """What workers may read beside the system's folders."""
        self.hidden = _our_folders()
        """What they may not read, wherever it lies."""
        self.environment = {
            "PYTHONPATH": os.pathsep.join(map(str, (stage, *_package_folders()))),
            "OMP_NUM_THREADS": str(thread_count()),
            "GLIBC_TUNABLES": allocator.TUNABLES,
            "MAX_JOBS": str(os.cpu_count() or 1),
            **({"CUDA_HOME": str(home)} if home else {}),
            **worker_environment(),
        }
        self._zygotes: dict[bool, Zygote] = {}
        self._lock = Lock()

    def zygote(self, *, gpu: bool) -> Zygote:
        """The process with torch imported that all workers are copies of; on a GPU they have another environment.

        Starts, where there is none, without being waited for. Safe in any thread.
        """
        with self._lock:
            zygote = self._zygotes.get(gpu)
            if zygote is not None and zygote.ended:
                zygote.close()
                zygote = None
            if zygote is None:
                zygote = self._zygotes[gpu] = Zygote(MODULE, self.environment, gpu=gpu)
            return zygote

    def close(self) -> None:
        """When all copies have ended."""
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()
        shutil.rmtree(self._stage, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_ahead(sandbox: Sandbox, device: str) -> None:
    """For `take`, where the sandbox can use it; `auto` is the GPU where there is one, as most submissions are for it.

    Raises UserError for a CUDA_HOME that torch could not use.
    """
    if sandbox.copies and not _ahead:
        _ahead.append(WorkerTemplate(find_toolchain()))
        _ahead[0].zygote(gpu=device != "cpu" and bool(gpu_devices()))


def take() -> WorkerTemplate:
    """The one that was started ahead, once; else a new one."""
    return _ahead.pop() if _ahead else WorkerTemplate(find_toolchain())


def close_ahead() -> None:
    """End what was started and not taken."""
    while _ahead:
        _ahead.pop().close()


def _our_folders() -> tuple[Path, ...]:
    """The grader's own files, where they lie in a tree that the sandbox shows, such as an installed wheel's."""
    package = Path(grader.__file__).parent
    siblings = ("db", "problems", "reference_solutions", "submissions", "tests")
    return tuple(path for path in (package, *(package.parent / name for name in siblings)) if path.is_dir())


@cache
def _package_folders() -> tuple[Path, ...]:
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


def _new_stage() -> Path:
    """A folder of our own. Those that killed graders left are removed: nobody else would."""
    # With the pid namespace, since a grader in another container may share the folder, but not our pids.
    prefix = f"grader-{Path('/proc/self/ns/pid').stat().st_ino}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if not Path("/proc", left.name.removeprefix(prefix).partition("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


def _copy_worker_source(stage: Path) -> None:
    """Only what the worker imports: nothing else of ours is visible inside."""
    source, target = Path(grader.__file__).parent, stage / "grader"
    target.mkdir()
    (target / "__init__.py").touch()
    shutil.copytree(source / "protocol", target / "protocol", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(source / "worker", target / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    for path in [stage, *stage.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
