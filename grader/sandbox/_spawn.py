"""Starts processes from one thread, with a minimal environment and no descriptor but those named."""

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from queue import SimpleQueue


class Pipe:
    """Both ends, closed at the latest by `close`."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        self._open = {self.read_fd, self.write_fd}

    def close(self, *fds: int) -> None:
        for fd in fds or tuple(self._open):
            if fd in self._open:
                self._open.remove(fd)
                os.close(fd)

    def detach(self, fd: int) -> int:
        self._open.remove(fd)
        return fd


def spawn(
    command: Sequence[str],
    pass_fds: tuple[int, ...],
    output_fd: int,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """`environment` in place of a minimal one."""

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
    """PDEATHSIG fires when the spawning *thread* ends, so one thread spawns everything and lives as long as we do."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
        self._requests = SimpleQueue()
        # A daemon: an executor's threads end at the start of the interpreter's exit, before other threads are done.
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
    """Minimal: the sandbox's pid 1 keeps it readable in /proc/1/environ, --clearenv notwithstanding."""
    return {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
