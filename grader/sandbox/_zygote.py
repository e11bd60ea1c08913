"""The keeper's end of a zygote: a trusted process whose copies become commands in sandboxes.

Importing PyTorch takes two seconds of a core; copying a process that has imported it takes a few hundredths. The
sandbox is the same as for any other command, built by the same program; the copy enters it by `setns`.
"""

import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from grader.errors import SandboxError
from grader.sandbox._spawn import inner_environment, spawn
from grader.sandbox._values import PYTHON

NEW_USER = 0x10000000
"""CLONE_NEWUSER in linux/sched.h."""
NAMESPACES = 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
"""Mounts, pids, network, System V IPC, host name and cgroups, in linux/sched.h."""


class Zygote:
    """Starts at once; copies that are requested during its imports wait for them."""

    def __init__(self, module: str, environment: Mapping[str, str], *, gpu: bool, later: str = "") -> None:
        """Start the process, which imports `module`; the module's `main` is the command of the copies.

        The module must be on the environment's PYTHONPATH, inside the sandbox too. Copies have this environment. Those
        that are made when the process has been idle for a while have the module `later` too.
        """
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output_fd = os.memfd_create("zygote-output")
        here = str(Path(__file__).parent)
        code = (
            f"import sys; sys.path.insert(0, {here!r}); import _copying; sys.path.remove({here!r}); "
            f"_copying.start({theirs.fileno()}, {os.getpid()}, {module!r}, {later!r})"
        )
        with theirs:
            self._process = spawn(
                [PYTHON, "-c", code],
                (theirs.fileno(),),
                self._output_fd,
                environment=inner_environment("/tmp", environment, gpu=gpu),
            )

    @property
    def ended(self) -> bool:
        """The process has ended, so it can make no more copies."""
        return self._process.poll() is not None

    def copy(self, request: Mapping[str, Any], fds: Sequence[int]) -> None:
        """Request a copy, without waiting for it. Raises SandboxError if the zygote has ended."""
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], list(fds))
        except OSError as error:
            raise SandboxError(f"the process that commands are copied from has ended: {self.last_words()}") from error

    def close(self) -> None:
        """End the process; its copies must have ended."""
        self._requests.close()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._output_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def last_words(self) -> str:
        """Return the last line that the process printed."""
        size = os.fstat(self._output_fd).st_size
        lines = os.pread(self._output_fd, 1 << 16, max(0, size - (1 << 16))).decode(errors="replace").splitlines()
        return lines[-1] if lines else "it printed nothing"


@dataclass(frozen=True)
class CopyOf:
    """A command that is a copy of a zygote, which calls its `main`."""

    zygote: Zygote
    arguments: Sequence[str | int] = ()
    """Arguments of `main`, after the passed descriptors."""


@dataclass(frozen=True)
class Copy:
    """A copy to make, once its sandbox exists."""

    of: CopyOf
    orders: Mapping[str, Any]
    """In the form that `_inside.py` reads."""
    cgroups: Sequence[str]
    pass_fds: Sequence[int]
    end_fd: int
    """The pipe that tells the sandbox's first command how the copy ended."""
    own_user: bool
    """The sandbox has a user namespace."""

    def enter(self, init_fd: int, output_fd: int, entered_fd: int) -> None:
        """Copy the zygote into the namespaces of the process that `init_fd` refers to.

        The copy's pid comes through `entered_fd`.
        """
        request = {
            "orders": self.orders,
            "arguments": list(self.of.arguments),
            "cgroups": list(self.cgroups),
            "namespaces": NAMESPACES | (NEW_USER if self.own_user else 0),
        }
        self.of.zygote.copy(request, (init_fd, output_fd, self.end_fd, entered_fd, *self.pass_fds))
