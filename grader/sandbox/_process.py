"""A running sandbox. A keeper thread reads its output, enforces its time limit, ends it and cleans up."""

import atexit
import fcntl
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from grader.errors import SandboxError
from grader.sandbox._cgroup import Cgroup
from grader.sandbox._launch import Launched
from grader.sandbox._values import Exit, Limits, Output

END_SECONDS = 30.0
"""Longest wait for killed processes, which may be in a driver's call. Beyond it the sandbox has failed."""
ENTER_SECONDS = 60.0
"""Longest wait for a copy, whose zygote may still be importing torch."""
LONGEST_POLL_SECONDS = 1e6
"""poll takes milliseconds as an int."""

_live: set["SandboxedProcess"] = set()


class Tree(Protocol):
    """All processes of one sandbox."""

    def kill(self) -> None:
        """Send SIGKILL to all of them; does nothing if they have ended."""

    def wait_gone(self, timeout_seconds: float) -> bool:
        """Wait until no process is left; return False if the time passes first."""


class HeadAndTail:
    """The head and tail of a stream: the first quarter of `limit_bytes` and the last three quarters.

    The head has a compiler's first error, the tail a traceback's last line.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes = limit_bytes // 4
        self._tail_bytes = limit_bytes - self._head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total_bytes = 0
        self._lock = threading.Lock()

    def add(self, chunk: bytes) -> None:
        """Append to the stream."""
        with self._lock:
            self._total_bytes += len(chunk)
            room = self._head_bytes - len(self._head)
            self._head += chunk[:room]
            self._tail += chunk[room:]
            if len(self._tail) > 2 * self._tail_bytes + (1 << 16):
                del self._tail[: len(self._tail) - self._tail_bytes]

    def output(self) -> Output:
        """Return what is kept of the stream so far."""
        with self._lock:
            tail = self._tail[max(0, len(self._tail) - self._tail_bytes) :]
            left_out = self._total_bytes - len(self._head) - len(tail)
            gap = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
            text = (bytes(self._head) + gap + bytes(tail)).decode(errors="replace")
            return Output(text=text, total_bytes=self._total_bytes)


class SandboxedProcess:
    """A command in its sandbox. Leaving the `with` block kills it."""

    pid: int
    """First process of the tree, by its pid outside; with bubblewrap the pid namespace's init, not the command."""

    applied: tuple[str, ...]
    """The layers that the inner launcher applied."""

    members: Callable[[], set[int]] | None
    """Returns the pids outside of all processes of the tree; None without a cgroup, which lists them."""

    freezer: Path | None
    """The cgroup whose `cgroup.freeze` stops all processes of the tree; None without one."""

    def __init__(
        self,
        launched: Launched,
        limits: Limits,
        tree: Tree,
        cgroup: Cgroup,
        *,
        clean_up: Callable[[], None],
    ) -> None:
        self.pid = launched.pid
        self.applied = launched.applied
        self.members = cgroup.members if cgroup.folders else None
        self.freezer = cgroup.freezer
        self._process = launched.process
        self._output_fd = launched.output_fd
        self._entered_fd = launched.entered_fd
        self._roots: set[int] | None = None
        self._pid_fd = launched.pid_fd
        self._tree = tree
        self._wall_seconds = limits.wall_seconds
        self._short_of_memory = cgroup.short_of_memory
        self._thaw = cgroup.thaw
        self._clean_up = clean_up
        self._kept = HeadAndTail(limits.output_bytes)
        self._exit: Exit | None = None
        self._error: SandboxError | None = None
        self._stop_fd = launched.stop_fd
        self._stop_lock = threading.Lock()
        self._finished = threading.Event()
        self._started = time.monotonic()
        _live.add(self)
        threading.Thread(target=self._keep, name=f"sandbox-keep-{self.pid}", daemon=True).start()

    @property
    def roots(self) -> set[int]:
        """Pids outside that all processes of the tree descend from: the first process and a zygote's copy.

        Waits for a copy that has not entered yet.
        """
        if self._roots is None:
            with self._stop_lock:
                entered = b"" if self._finished.is_set() else _read_within(self._entered_fd, ENTER_SECONDS)
            self._roots = {self.pid, *map(int, entered.split())}
        return self._roots

    def wait(self, timeout_seconds: float | None = None) -> Exit | None:
        """Wait until no process is left, and return the exit; None if the time passes first.

        Raises SandboxError if the sandbox failed.
        """
        if not self._finished.wait(timeout_seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._exit

    @property
    def ended(self) -> bool:
        """No process is left, or some could not be ended, for which `wait` raises SandboxError."""
        return self._finished.is_set()

    def end(self) -> None:
        """End all processes, without waiting for it."""
        with self._stop_lock:
            if not self._finished.is_set():
                os.eventfd_write(self._stop_fd, 1)

    def kill(self) -> None:
        """End all processes, and return when nothing is left: no process, no cgroup, no descriptor."""
        self.end()
        self.wait()

    def output(self) -> Output:
        """Return what was printed so far."""
        return self._kept.output()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _keep(self) -> None:
        try:
            timed_out = self._follow()
            wall_seconds = time.monotonic() - self._started
            status = self._end()
            short_of_memory = self._short_of_memory()
            self._exit = Exit(
                returncode=None if 128 < status <= 192 else status,
                signal=status - 128 if 128 < status <= 192 else None,
                timed_out=timed_out,
                out_of_memory=short_of_memory == "group",
                host_out_of_memory=short_of_memory == "host",
                wall_seconds=wall_seconds,
            )
        except Exception as error:
            self._error = self._as_sandbox_error(error)
            self._tree.kill()
            self._process.kill()
        finally:
            self._close()

    def _follow(self) -> bool:
        """Wait until the command ends or must be ended; return whether the time limit was the reason."""
        process_fd = os.pidfd_open(self._process.pid)
        try:
            poller = select.poll()
            for fd in (process_fd, self._stop_fd, self._output_fd):
                poller.register(fd, select.POLLIN)
            while True:
                left_seconds = self._started + self._wall_seconds - time.monotonic()
                ready = {fd for fd, _ in poller.poll(1000 * min(max(0.0, left_seconds), LONGEST_POLL_SECONDS))}
                if process_fd in ready or self._stop_fd in ready:
                    return False
                if left_seconds <= 0:
                    return True
                if self._output_fd in ready:
                    chunk = os.read(self._output_fd, 1 << 16)
                    if chunk:
                        self._kept.add(chunk)
                    else:
                        poller.unregister(self._output_fd)
        finally:
            os.close(process_fd)

    def _end(self) -> int:
        """Kill all processes that are left, and return the command's status as a shell would report it."""
        self._tree.kill()
        self._thaw()
        try:
            status = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise SandboxError(f"sandbox {self.pid} was killed and still exists after {END_SECONDS:.0f} s") from None
        if not self._tree.wait_gone(END_SECONDS):
            raise SandboxError(f"processes of sandbox {self.pid} still exist after {END_SECONDS:.0f} s")
        self._drain()
        return status if status >= 0 else 128 - status

    def _drain(self) -> None:
        """Read what is in the pipe, but not to its end, which an escaped daemon may hold open."""
        os.set_blocking(self._output_fd, False)
        left_bytes = fcntl.fcntl(self._output_fd, fcntl.F_GETPIPE_SZ)
        with suppress(BlockingIOError):
            while left_bytes > 0 and (chunk := os.read(self._output_fd, left_bytes)):
                self._kept.add(chunk)
                left_bytes -= len(chunk)

    def _close(self) -> None:
        try:
            self._clean_up()
        except Exception as error:
            self._error = self._error or self._as_sandbox_error(error)
        with self._stop_lock:
            for fd in (self._output_fd, self._stop_fd, self._pid_fd, self._entered_fd):
                os.close(fd)
            _live.discard(self)
            self._finished.set()

    def _as_sandbox_error(self, error: Exception) -> SandboxError:
        return error if isinstance(error, SandboxError) else SandboxError(f"sandbox {self.pid}: {error}")


def _read_within(fd: int, seconds: float) -> bytes:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return os.read(fd, 16) if poller.poll(1000 * seconds) else b""


@atexit.register
def _kill_live() -> None:
    for process in tuple(_live):
        with suppress(SandboxError):
            process.kill()


os.register_at_fork(after_in_child=_live.clear)
