"""Starts processes from one thread, with a fixed environment and only the descriptors that are passed."""

import os
import platform
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from queue import SimpleQueue

from grader.sandbox._values import PYTHON

USER = "sandbox"
"""The user's name inside."""


class Pipe:
    """A pipe whose two ends are closed at the latest by `close`."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        self._open = {self.read_fd, self.write_fd}

    def close(self, *fds: int) -> None:
        """Close some ends, or all that are open."""
        for fd in fds or tuple(self._open):
            if fd in self._open:
                self._open.remove(fd)
                os.close(fd)

    def detach(self, fd: int) -> int:
        """Return an end that the caller closes."""
        self._open.remove(fd)
        return fd


def spawn(
    command: Sequence[str],
    pass_fds: tuple[int, ...],
    output_fd: int,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a new session, in `environment` instead of a minimal one."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output_fd,
            stderr=output_fd,
            pass_fds=pass_fds,
            start_new_session=True,
            cwd="/",
            env=_outer_environment() if environment is None else environment,
        )

    return _spawner().run(start)


class _Spawner:
    """One thread that starts every process and never ends.

    PDEATHSIG fires when the spawning *thread* ends.
    """

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
        self._requests = SimpleQueue()
        # A daemon: an executor's threads end early in the interpreter's exit, before other threads are done.
        threading.Thread(target=self._serve, name="sandbox-spawn", daemon=True).start()

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        future: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((start, future))
        return future.result()

    def _serve(self) -> None:
        while True:
            start, future = self._requests.get()
            try:
                future.set_result(start())
            except Exception as error:
                future.set_exception(error)


@cache
def _spawner() -> _Spawner:
    return _Spawner()


os.register_at_fork(after_in_child=_spawner.cache_clear)


def _outer_environment() -> dict[str, str]:
    """Return a minimal environment: despite --clearenv it is readable in /proc/1/environ inside."""
    return {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}


@cache
def _compiles_vector_instructions() -> bool:
    """Whether the C++ compiler knows the vector instructions of x86 that TorchInductor may ask for.

    If it does, TorchInductor need not compile a test program for each set of them, which takes 7 CPU seconds in every
    new sandbox.
    """
    flags = ("-mavx512bf16", "-mavx512vnni", "-mamx-tile", "-mamx-bf16", "-mamx-int8")
    command = ["g++", *flags, "-E", "-x", "c++", os.devnull]
    try:
        return platform.machine() == "x86_64" and not subprocess.run(command, capture_output=True).returncode
    except OSError:
        return False


def inner_environment(scratch: str, extra: Mapping[str, str], *, gpu: bool) -> dict[str, str]:
    """Return the environment inside: fixed variables, then `extra`, nothing of the grader's own.

    PATH starts with the grader's interpreter, so `python` means the same inside.
    """
    search = (str(Path(PYTHON).parent), "/usr/local/cuda/bin", "/usr/local/bin", "/usr/bin", "/bin")
    fixed = {
        "PATH": ":".join(search),
        "HOME": scratch,
        "TMPDIR": scratch,
        "USER": USER,
        "LOGNAME": USER,
        "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": f"{scratch}/.cache",
        "TORCH_EXTENSIONS_DIR": f"{scratch}/.cache/torch_extensions",
        "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/.cache/torchinductor",
        "TRITON_CACHE_DIR": f"{scratch}/.cache/triton",
        "CUDA_CACHE_PATH": f"{scratch}/.cache/cuda",
        "CUPY_CACHE_DIR": f"{scratch}/.cache/cupy",
        "NUMBA_CACHE_DIR": f"{scratch}/.cache/numba",
        "CUTE_DSL_CACHE_DIR": f"{scratch}/.cache/cute",
        "TILELANG_CACHE_DIR": f"{scratch}/.cache/tilelang",
        # A compiler cache that outlives the sandbox would let one submission poison the next one's build.
        "TORCH_NO_COMPILER_WRAPPER": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }
    if _compiles_vector_instructions():
        fixed["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
    if gpu and (library_path := os.environ.get("LD_LIBRARY_PATH")):
        fixed["LD_LIBRARY_PATH"] = library_path  # where some hosts keep the driver's libraries
    return fixed | dict(extra)
