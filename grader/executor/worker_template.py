"""The template of workers: the process that they are copied from, and the files that they may read.

It does not import torch, so that `start_ahead` can start a zygote that imports torch while this process does. The
launcher takes that template later.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import sys
import tempfile
import weakref
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Self

import grader
from grader.machine import allocator
from grader.machine.backends import accelerators, backend, worker_environment
from grader.machine.host import thread_count
from grader.machine.toolchain import Toolchain, find_toolchain
from grader.sandbox import Zygote, gpu_devices

MODULE = "grader.worker.main"
"""The module that a worker runs; its `main` takes the socket's descriptor, a niceness and a GPU architecture."""
TRITON = "grader.worker.compile.load_triton"
"""What the copies on a GPU get when there is time: a first kernel would wait for it."""
DEFAULT_ARCHITECTURE = "9.0"
"""The architecture that CUDA extensions are compiled for if there is no GPU: Hopper's."""
IMPORTS = ("torch", "pydantic", "pydantic_core", "annotated_types", "typing_inspection", "typing_extensions", "numpy")
"""Packages that the worker imports, directly or not."""
OPERATORS_CHOICE = ("OMP_WAIT_POLICY",)
"""Variables that workers get if they are set. OpenMP's threads spin for milliseconds before they sleep, as where a user
times PyTorch; where other processes need the cores, a worker is up to ten times slower by that, unless they are
passive."""
_ahead: list[WorkerTemplate] = []


class WorkerTemplate:
    """Owns the folder with the worker's source, and the zygotes."""

    def __init__(self, toolchain: Toolchain) -> None:
        """Copy the worker's source to a new folder."""
        stage, home, cutlass = _stage_folder(), toolchain.cuda_home, toolchain.cutlass
        self._remove = weakref.finalize(self, _remove, stage, os.getpid())  # first: a signal may end this at any time
        stage.mkdir(mode=0o700)
        _copy_worker_source(stage)
        self.readonly = (
            stage,
            *_package_folders(),
            *([home] if home else []),
            *([cutlass / "include"] if cutlass else []),
        )
        """Trees that workers may read in addition to the system's."""
        self.hidden = _grader_folders()
        """Folders that they may not read, even inside of readable trees."""
        self.environment = {
            "PYTHONPATH": os.pathsep.join(map(str, (stage, *_package_folders()))),
            "OMP_NUM_THREADS": str(thread_count()),
            "GLIBC_TUNABLES": allocator.TUNABLES,
            "MAX_JOBS": str(os.cpu_count() or 1),
            **{name: os.environ[name] for name in OPERATORS_CHOICE if name in os.environ},
            **({"CUDA_HOME": str(home)} if home else {}),
            **({"CUTLASS_PATH": str(cutlass)} if cutlass else {}),
            **worker_environment(),
        }
        self._zygotes: dict[bool, Zygote] = {}
        self._lock = Lock()

    def zygote(self, *, gpu: bool) -> Zygote:
        """Return the process with torch imported that GPU workers, or other workers, are copied from.

        Starts it if necessary, without waiting for it. Safe in any thread.
        """
        with self._lock:
            zygote = self._zygotes.get(gpu)
            if zygote is not None and zygote.ended:
                zygote.close()
                zygote = None
            if zygote is None:
                later = TRITON if gpu else ""
                zygote = self._zygotes[gpu] = Zygote(MODULE, self.environment, gpu=gpu, later=later)
            return zygote

    def close(self) -> None:
        """End the zygotes and remove the folder; all copies must have ended."""
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_ahead(device: str) -> None:
    """Start a template for `take`, which only a sandbox that supports copies uses.

    `auto` is the GPU if there is one. The template ends with the thread that calls this. Raises
    UserError for a CUDA_HOME that torch could not use.
    """
    if not _ahead:
        gpu = device != "cpu" and bool(gpu_devices())
        _ahead.append(WorkerTemplate(find_toolchain()))
        _ahead[0].zygote(gpu=gpu)
        for accelerator in accelerators() if gpu else ():
            backend(accelerator).start_driver()


def take() -> WorkerTemplate:
    """Return the template that was started ahead, or a new one if that has been taken."""
    return _ahead.pop() if _ahead else WorkerTemplate(find_toolchain())


def close_ahead() -> None:
    """Close a template that was started ahead and not taken."""
    while _ahead:
        _ahead.pop().close()


def _grader_folders() -> tuple[Path, ...]:
    """Return the grader's own folders, which may lie in a readable tree, such as site-packages."""
    package = Path(grader.__file__).parent
    siblings = ("db", "problems", "reference_solutions", "submissions", "tests")
    return tuple(path for path in (package, *(package.parent / name for name in siblings)) if path.is_dir())


@cache
def _package_folders() -> tuple[Path, ...]:
    """Return the folders of the worker's imports that are outside of the interpreter's own folders."""
    prefixes = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    folders: list[Path] = []
    for name in IMPORTS:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin).resolve()
        folder = origin.parent if spec.submodule_search_locations is None else origin.parent.parent
        if folder not in folders and not any(folder.is_relative_to(prefix) for prefix in prefixes):
            folders.append(folder)
    return tuple(folders)


def _stage_folder() -> Path:
    """Return a new folder's path, and remove the folders of graders that were killed."""
    # Named by pid and pid namespace: a grader in another container may share the folder, but not the pids.
    prefix = f"grader-{Path('/proc/self/ns/pid').stat().st_ino}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if not Path("/proc", left.name.removeprefix(prefix).partition("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.gettempdir(), f"{prefix}{os.getpid()}-{secrets.token_hex(4)}")


def _remove(stage: Path, pid: int) -> None:
    if os.getpid() == pid:  # and not a copy of this process, which ends too
        shutil.rmtree(stage, ignore_errors=True)


def _copy_worker_source(stage: Path) -> None:
    """Copy what the worker imports; nothing else of the grader is visible inside."""
    source, target = Path(grader.__file__).parent, stage / "grader"
    target.mkdir()
    (target / "__init__.py").touch()
    shutil.copytree(source / "protocol", target / "protocol", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(source / "worker", target / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(source / "device_code", target / "device_code")
    for path in [stage, *stage.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
