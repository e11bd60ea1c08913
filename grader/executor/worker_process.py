"""A worker's process and its control socket, with what they waited for a core."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from grader.executor.process_table import tree
from grader.executor.worker_template import DEFAULT_ARCHITECTURE, MODULE
from grader.protocol import Failure
from grader.sandbox import PYTHON, CopyOf, Exit, Limits, Sandbox, SandboxedProcess, Zygote
from grader.verdict.models import Status


class SocketTimeout(Exception):
    """The deadline passed first."""


class SocketClosed(Exception):
    """The worker closed its end, or ended."""


class ControlSocket:
    """A non-blocking socket whose other end, `theirs`, is for the worker."""

    def __init__(self) -> None:
        self._socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close this end. May be called twice."""
        self._selector.close()
        self._socket.close()

    def send(self, message: bytes, descriptors: Sequence[int], deadline: float) -> None:
        """Send a message with file descriptors. Raises SocketTimeout or SocketClosed."""
        sent = 0
        with selectors.DefaultSelector() as writable:
            writable.register(self._socket, selectors.EVENT_WRITE)
            while sent < len(message):
                if not writable.select(max(0.0, deadline - time.monotonic())):
                    raise SocketTimeout
                try:
                    if sent == 0 and descriptors:
                        sent = socket.send_fds(self._socket, [message], list(descriptors))
                    else:
                        sent += self._socket.send(message[sent:])
                except BlockingIOError:
                    continue
                except OSError:
                    raise SocketClosed from None

    def readable(self, seconds: float = 0.0) -> bool:
        """Wait for bytes or the end of the stream; return False if the time passes first."""
        return bool(self._selector.select(max(0.0, seconds)))

    def await_readable(self, deadline: float) -> None:
        """Wait as `readable` does. Raises SocketTimeout."""
        if not self.readable(deadline - time.monotonic()):
            raise SocketTimeout

    def has_byte(self) -> bool:
        """Read one byte of a readable socket; return False if it is closed instead."""
        try:
            return bool(self._socket.recv(1))
        except OSError:
            return False

    def read(self, count: int, deadline: float) -> bytes:
        """Read exactly `count` bytes. Raises SocketTimeout or SocketClosed."""
        chunks = bytearray()
        while len(chunks) < count:
            self.await_readable(deadline)
            try:
                chunk = self._socket.recv(min(count - len(chunks), 1 << 20))
            except BlockingIOError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                raise SocketClosed
            chunks += chunk
        return bytes(chunks)


FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
"""What operators and programs that watch over memory send. No fault of a kernel causes these signals."""
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
"""Signals that an access out of bounds causes, at once or when the C library finds what it left."""


class Killer(Enum):
    """The process that ended a worker, where it was no access out of bounds."""

    ITSELF = "itself"
    """A process of the worker: it exited, or sent a signal (`grader.worker.self_kill`), or one of its timers did, or it
    stopped itself."""

    HOST = "host"
    """The kernel, for lack of memory outside of the worker's own limit."""
    UNKNOWN = "unknown"
    """Something outside, or the worker itself in a way that looks the same, such as a limit on its CPU time."""


@dataclass(frozen=True)
class WorkerOptions:
    """Options for starting a worker."""

    limits: Limits
    role: str = "worker"
    """Names the worker in the log."""
    gpu: bool = False
    """GPU devices are visible."""
    roomy: Callable[[], bool] = lambda: False
    """Regions have room to grow, on a GPU with ample memory."""
    environment: Mapping[str, str] = field(default_factory=dict)
    readonly: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    niceness: int = 0
    """Niceness of the worker and of all that it starts."""
    architecture: str = DEFAULT_ARCHITECTURE
    """GPU architecture that CUDA extensions are compiled for."""
    cores: frozenset[int] = frozenset()
    """Cores for the worker and all that it starts; empty: those of the grader."""


def start_process(sandbox: Sandbox, options: WorkerOptions, descriptor: int, zygote: Zygote | None) -> SandboxedProcess:
    """Start a worker that serves the socket `descriptor`. Raises SandboxError."""
    # Importing torch is faster without garbage collection; the worker enables it when it listens.
    arguments = f"{descriptor}, {options.niceness}, {options.architecture!r}"
    code = f"import gc; gc.disable(); from {MODULE} import main; main({arguments})"
    copy = None if zygote is None else CopyOf(zygote, [options.niceness, options.architecture])
    process = sandbox.spawn(
        copy or [PYTHON, "-c", code],
        environment=options.environment,
        limits=options.limits,
        gpu=options.gpu,
        pass_fds=(descriptor,),
        readonly=options.readonly,
        hidden=options.hidden,
    )
    for pid in process.roots if options.cores else ():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(pid, options.cores)
    return process


class Ending(NamedTuple):
    """The end of a worker that did not answer."""

    status: Status
    text: str
    killer: Killer | None = None


class WorkerLost(Exception):
    """The worker ended or can no longer be used: the submission's fault unless something outside ended it.

    `status` is one of crashed, timeout, out_of_memory, runtime_error, integrity_violation; `killer` is set if a signal
    ended it that no fault causes; `job` is the number and the steps of its last job.
    """

    def __init__(
        self, status: Status, message: str, output: str = "", killer: Killer | None = None, job: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.output, self.killer, self.job = status, output, killer, job


def describe_exit(exit_: Exit, limits: Limits) -> Ending:
    """Return how a worker ended before it answered."""
    if exit_.timed_out:
        return Ending(Status.TIMEOUT, f"was stopped after {exit_.wall_seconds:.0f} s")
    if exit_.out_of_memory:
        return Ending(Status.OUT_OF_MEMORY, f"used more than its {limits.memory_bytes / 2**30:.0f} GiB of memory")
    if exit_.host_out_of_memory:
        return Ending(Status.CRASHED, "was ended by the kernel because the machine's memory ran out", Killer.HOST)
    if exit_.signal is None:
        return Ending(Status.CRASHED, f"exited with status {exit_.returncode} before it answered", Killer.ITSELF)
    if exit_.signal == signal.SIGSYS:
        return Ending(Status.CRASHED, "was ended for a signal to itself, SIGKILL or SIGTERM", Killer.ITSELF)
    killer = Killer.UNKNOWN if exit_.signal in FROM_OUTSIDE else None if exit_.signal in FAULTS else Killer.ITSELF
    return Ending(Status.CRASHED, f"was ended by {signal_name(exit_.signal)}", killer)


def describe_silence(roots: set[int], seconds: float) -> Ending:
    """Return why a worker with these first processes gave no answer in time."""
    silent = f"gave no answer within {seconds:g} s"
    if "T" in tree(roots).values():
        return Ending(Status.TIMEOUT, f"stood still, stopped by a signal such as SIGSTOP, and {silent}", Killer.ITSELF)
    return Ending(Status.TIMEOUT, silent)


def describe_attach_failure(region: str, failure: Failure) -> Ending:
    """Return why a worker could not map a region; a lack of descriptors is not one of memory."""
    short = failure.kind == "out_of_memory" or os.strerror(errno.ENOMEM) in failure.text
    status = Status.OUT_OF_MEMORY if short else Status.RUNTIME_ERROR
    return Ending(status, f"could not map its {region}: {failure.text}")


def signal_name(number: int) -> str:
    """Return `SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def waited_ms(pids: Iterable[int], *, main_threads: bool = False) -> float:
    """Return how many milliseconds the threads of these processes have waited for a core so far.

    From /proc/PID/task/TID/schedstat, whose second number is in nanoseconds; 0 where the kernel does not count them.
    """
    nanoseconds = 0
    for pid in pids:
        with suppress(OSError):  # it has ended
            folder = f"/proc/{pid}/task"
            for thread in [f"{folder}/{pid}"] if main_threads else map(os.fspath, os.scandir(folder)):
                nanoseconds += _waited_ns(f"{thread}/schedstat")
    return nanoseconds / 1e6


def _waited_ns(schedstat: str) -> int:
    """The second number of the file; without pathlib, which takes most of a short call's time."""
    try:
        descriptor = os.open(schedstat, os.O_RDONLY)
    except OSError:  # the thread has ended, or the kernel does not count
        return 0
    try:
        return int(os.read(descriptor, 100).split()[1])
    except (OSError, IndexError):
        return 0
    finally:
        os.close(descriptor)


def busy_seconds(pids: Iterable[int]) -> float:
    """Return the host's clock in seconds, less what this process and `pids` have waited for a core.

    They take turns, so that the waits of their main threads add up.
    """
    return time.monotonic() - waited_ms([os.getpid(), *pids], main_threads=True) / 1e3
