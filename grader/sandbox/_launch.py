"""Starts a sandbox until its first inner command runs, and releases that.

outside                                     inside (_inside.py)
Popen, from the one spawning thread
                                            "r": it runs, so bubblewrap now ends with the grader
the first pid is known, orders are sent
                                            privileges given up, {"applied": [...]}, exec
end of file on the status pipe: released

If the command is a zygote's copy, nothing is executed, and the copy is requested at the end (`_zygote.py`).
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from grader.errors import SandboxError
from grader.sandbox._spawn import Pipe, spawn
from grader.sandbox._values import PYTHON
from grader.sandbox._zygote import Copy

START_SECONDS = 60.0
"""Longest wait for a start: a loaded machine may take long to start a process."""


@dataclass(frozen=True)
class Start:
    """A sandbox to start: its command, orders and descriptors."""

    command: list[str]
    """The command before the inner launcher: joins the cgroup, enters the sandbox."""

    orders: Mapping[str, Any]
    """In the form that `_inside.py` reads."""

    pass_fds: tuple[int, ...]
    """Descriptors for the command, or for bubblewrap itself."""

    copy: Copy | None = None
    """The command, if it is a zygote's copy."""


@dataclass(frozen=True)
class Launched:
    """A running sandbox."""

    process: subprocess.Popen[bytes]
    """bubblewrap, or without it the command itself. Killed by PDEATHSIG when the grader ends."""

    pid: int
    """Pid outside of the first process."""

    pid_fd: int
    """Refers to the first process even when it has ended and its pid is in use again."""

    output_fd: int
    """The read end of its stdout and stderr."""

    stop_fd: int
    """An eventfd: a write to it ends the sandbox."""

    applied: tuple[str, ...]
    """The layers that the inner launcher applied."""

    entered_fd: int
    """The read end of a pipe with the copy's pid; at end of file without a copy."""


def launch(start: Start, info: Pipe | None = None) -> Launched:
    """Start a sandbox. `info` is bubblewrap's --info-fd.

    Raises SandboxError with the last line of the sandbox's output.
    """
    deadline = time.monotonic() + START_SECONDS
    go, status, output, entered = Pipe(), Pipe(), Pipe(), Pipe()
    process: subprocess.Popen[bytes] | None = None
    pid_fd: int | None = None
    try:
        inner = [PYTHON, "-I", "-S", "-B", "-c", _inside_source(), str(go.read_fd), str(status.write_fd)]
        process = spawn(start.command + inner, (*start.pass_fds, go.read_fd, status.write_fd), output.write_fd)
        go.close(go.read_fd)
        status.close(status.write_fd)
        pid = process.pid
        if info is not None:
            info.close(info.write_fd)
            pid = _child_pid(_read_until(info.read_fd, b"}", deadline))
        if _read_until(status.read_fd, b"r", deadline) != b"r":
            raise SandboxError("the inner launcher did not start")
        pid_fd = os.pidfd_open(pid)
        with os.fdopen(go.detach(go.write_fd), "wb") as orders:
            orders.write(json.dumps(start.orders).encode() + b"\n")
        applied = _read_status(_read_until(status.read_fd, None, deadline))
        if start.copy is not None:
            start.copy.enter(pid_fd, output.write_fd, entered.write_fd)
        stop_fd = os.eventfd(0)  # here, so that a lack of descriptors ends what was started
        output_fd, entered_fd = output.detach(output.read_fd), entered.detach(entered.read_fd)
        return Launched(process, pid, pid_fd, output_fd, stop_fd, applied, entered_fd)
    except BaseException as error:
        go.close()
        if pid_fd is not None:
            signal.pidfd_send_signal(pid_fd, signal.SIGKILL)
            os.close(pid_fd)
        if process is not None:
            _end(process)
        if isinstance(error, (SandboxError, OSError)):
            last = _last_line(output.read_fd)
            raise SandboxError(f"{error}: {last}" if last else str(error)) from error
        raise
    finally:
        for pipe in (go, status, output, entered):
            pipe.close()


@cache
def _inside_source() -> str:
    return Path(__file__).with_name("_inside.py").read_text()


def _read_until(fd: int, end: bytes | None, deadline: float) -> bytes:
    """Read up to and including `end`, or to end of file. Raises SandboxError at the deadline."""
    text = b""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while end is None or end not in text:
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise SandboxError(f"the sandbox did not start within {START_SECONDS:.0f} s")
        chunk = os.read(fd, 1 if end is not None else 1 << 16)
        if not chunk:
            break
        text += chunk
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the process to exit for lack of orders, then kill it: that alone leaves a waiting child."""
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _child_pid(info: bytes) -> int:
    try:
        return int(json.loads(info)["child-pid"])
    except (ValueError, KeyError) as error:
        raise SandboxError("bubblewrap did not start") from error


def _read_status(text: bytes) -> tuple[str, ...]:
    merged: dict[str, Any] = {}
    for line in text.splitlines():
        merged |= json.loads(line)
    if "error" in merged or "applied" not in merged:
        raise SandboxError(merged.get("error", "the inner launcher ended early"))
    return tuple(merged["applied"])


def _last_line(output_fd: int) -> str:
    """Return the last line that a sandbox printed before it failed to start."""
    os.set_blocking(output_fd, False)
    try:
        lines = os.read(output_fd, 1 << 16).decode(errors="replace").strip().splitlines()
    except BlockingIOError:
        return ""
    return lines[-1] if lines else ""
