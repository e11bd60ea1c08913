"""How a worker process starts, and what its end means."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from grader.executor.worker_template import DEFAULT_ARCHITECTURE, MODULE
from grader.sandbox import Exit, Limits, Sandbox, SandboxedProcess, Zygote
from grader.verdict.models import Status


@dataclass(frozen=True)
class WorkerOptions:
    """How to start a worker."""

    limits: Limits
    role: str = "worker"
    """Names the worker in the log."""
    gpu: bool = False
    """GPU devices are visible."""
    roomy: bool = False
    """Regions have room to grow, on a GPU with ample memory."""
    environment: Mapping[str, str] = field(default_factory=dict)
    readonly: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    niceness: int = 0
    """Niceness of the worker and of all that it starts."""
    architecture: str = DEFAULT_ARCHITECTURE
    """GPU architecture that CUDA extensions are compiled for."""


class WorkerLost(Exception):
    """The worker ended or can no longer be used: a verdict on the submission, not an error of the grader.

    `status` is one of crashed, timeout, out_of_memory, integrity_violation.
    """

    def __init__(self, status: Status, message: str, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.output = output


def start_process(sandbox: Sandbox, options: WorkerOptions, descriptor: int, zygote: Zygote | None) -> SandboxedProcess:
    """Start a worker that serves the socket `descriptor`. Raises SandboxError."""
    spawn: Callable[..., SandboxedProcess]
    if zygote is not None:
        spawn = partial(sandbox.spawn_copy, zygote, [options.niceness, options.architecture])
    else:
        # Importing torch is faster without garbage collection; the worker enables it when it listens.
        arguments = f"{descriptor}, {options.niceness}, {options.architecture!r}"
        code = f"import gc; gc.disable(); from {MODULE} import main; main({arguments})"
        spawn = partial(sandbox.spawn, [sys.executable, "-c", code], environment=options.environment)
    return spawn(
        limits=options.limits,
        gpu=options.gpu,
        pass_fds=(descriptor,),
        readonly=options.readonly,
        hidden=options.hidden,
    )


def describe_exit(exit_: Exit, limits: Limits) -> tuple[Status, str]:
    """Return the status of a worker that ended before it answered, and how it ended."""
    if exit_.timed_out:
        return Status.TIMEOUT, f"was stopped after {exit_.wall_seconds:.0f} s"
    if exit_.out_of_memory:
        return Status.OUT_OF_MEMORY, f"used more than its {limits.memory_bytes / 2**30:.0f} GiB of memory"
    if exit_.signal is not None:
        return Status.CRASHED, f"was ended by {signal_name(exit_.signal)}"
    return Status.CRASHED, f"exited with status {exit_.returncode} before it answered"


def signal_name(number: int) -> str:
    """Return `SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
