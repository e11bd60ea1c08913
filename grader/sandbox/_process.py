"""A running sandbox. One keeper thread owns it: reads its output, watches the clock, ends the tree, cleans up."""

import atexit
import fcntl
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from grader.errors import SandboxError
from grader.sandbox._cgroup import Cgroup
from grader.sandbox._launch import Launched
from grader.sandbox._output import HeadAndTail
from grader.sandbox._tree import Tree
from grader.sandbox._values import Exit, Limits, Output

END_SECONDS = 30.0  # a killed process may sit in a driver call; beyond this it is our failure, said aloud
ENTER_SECONDS = 60.0  # a zygote may still import what its copies need
LONGEST_POLL_SECONDS = 1e6  # poll takes milliseconds as an int

_live: set["SandboxedProcess"] = set()


class SandboxedProcess:
    """A command in its sandbox. Leaving the `with` block kills it."""

    pid: int
    """The tree's first process, seen from outside; with bubblewrap the pid namespace's init, not the command."""

    applied: tuple[str, ...]
    """The layers that the inner launcher applied."""

    members: Callable[[], set[int]] | None
    """Tells all processes of the tree, seen from outside, where the kernel keeps account of them: in a cgroup."""

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
        self._process = launched.process
        self._output_fd = launched.output_fd
        self._entered_fd = launched.entered_fd
        self._roots: set[int] | None = None
        self._pid_fd = launched.pid_fd
        self._tree = tree
        self._wall_seconds = limits.wall_seconds
        self._out_of_memory = cgroup.out_of_memory
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
        """Those whom all of the tree descend from, seen from outside: beside the first process a zygote's copy.

        Waits for a copy that is still to come.
        """
        if self._roots is None:
            with self._stop_lock:
                entered = b"" if self._finished.is_set() else _read_within(self._entered_fd, ENTER_SECONDS)
            self._roots = {self.pid, *map(int, entered.split())}
        return self._roots

    def wait(self, timeout_seconds: float | None = None) -> Exit | None:
        """The exit, once nothing of the tree is left; None when the timeout passes first (the sandbox runs on)."""
        if not self._finished.wait(timeout_seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._exit

    @property
    def ended(self) -> bool:
        """Nothing of the tree is left, or what is left could not be ended, which `wait` raises."""
        return self._finished.is_set()

    def end(self) -> None:
        """Has the whole tree ended, without waiting for it."""
        with self._stop_lock:
            if not self._finished.is_set():
                os.eventfd_write(self._stop_fd, 1)

    def kill(self) -> None:
        """Ends the whole tree, and returns when nothing is left of it: no process, no cgroup, no descriptor."""
        self.end()
        self.wait()

    def output(self) -> Output:
        """What was printed so far."""
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
            self._exit = Exit(
                returncode=None if 128 < status <= 192 else status,
                signal=status - 128 if 128 < status <= 192 else None,
                timed_out=timed_out,
                out_of_memory=self._out_of_memory(),
                wall_seconds=wall_seconds,
            )
        except Exception as error:
            self._error = self._ours(error)
            self._tree.kill()
            self._process.kill()
        finally:
            self._close()

    def _follow(self) -> bool:
        """Until the command ends, or has to; whether the clock ended it."""
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
        """Kills what is left, also behind a command that ended by itself; the status as a shell would give it."""
        self._tree.kill()
        try:
            status = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise SandboxError(f"sandbox {self.pid} was killed and is still there after {END_SECONDS:.0f} s") from None
        if not self._tree.wait_gone(END_SECONDS):
            raise SandboxError(f"processes of sandbox {self.pid} are still there after {END_SECONDS:.0f} s")
        self._drain()
        return status if status >= 0 else 128 - status

    def _drain(self) -> None:
        """What is still in the pipe, and no more: where daemons can escape, one may hold the other end."""
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
            self._error = self._error or self._ours(error)
        with self._stop_lock:
            for fd in (self._output_fd, self._stop_fd, self._pid_fd, self._entered_fd):
                os.close(fd)
            _live.discard(self)
            self._finished.set()

    def _ours(self, error: Exception) -> SandboxError:
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
