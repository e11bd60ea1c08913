"""The keeper's end of a zygote: a trusted process whose copies become commands, each in a sandbox of its own.

Importing PyTorch takes two seconds of a core, copying a process that has done so a few hundredths. The walls are the
same as for any other command, built by the same program; the copy walks in through the door that `setns` is.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from grader.errors import SandboxError
from grader.sandbox._environment import inside
from grader.sandbox._spawn import spawn

# linux/sched.h
NEW_USER = 0x10000000
NAMESPACES = 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
"""Mounts, pids, network, System V IPC, host name, cgroups."""


class Zygote:
    """Starts at once; copies that are asked for while it still imports wait for that. A context manager."""

    def __init__(self, module: str, environment: Mapping[str, str], *, gpu: bool) -> None:
        """`module` is found through the environment's PYTHONPATH, inside too; its `main` is the command.

        Copies have this environment: it cannot be changed when they are made.
        """
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said_fd = os.memfd_create("zygote-output")
        here = str(Path(__file__).parent)
        code = (
            f"import sys; sys.path.insert(0, {here!r}); import _copying; sys.path.remove({here!r}); "
            f"_copying.start({theirs.fileno()}, {os.getpid()}, {module!r})"
        )
        with theirs:
            self._process = spawn(
                [sys.executable, "-c", code],
                (theirs.fileno(),),
                self._said_fd,
                environment=inside("/tmp", environment, gpu=gpu),
            )

    @property
    def ended(self) -> bool:
        """It cannot be asked any more."""
        return self._process.poll() is not None

    def copy(self, request: Mapping[str, Any], fds: Sequence[int]) -> None:
        """Asks, and does not wait. Raises SandboxError where nobody is there to be asked."""
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], list(fds))
        except OSError as error:
            raise SandboxError(f"the process that commands are copied from has ended: {self.last_words()}") from error

    def close(self) -> None:
        """When its copies have ended."""
        self._requests.close()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._said_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def last_words(self) -> str:
        """The last line that it printed."""
        size = os.fstat(self._said_fd).st_size
        lines = os.pread(self._said_fd, 1 << 16, max(0, size - (1 << 16))).decode(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


@dataclass(frozen=True)
class Copy:
    """What is to be copied into a sandbox, once that stands."""

    zygote: Zygote
    arguments: Sequence[str | int]
    """For the command, after the descriptors that are passed."""
    orders: Mapping[str, Any]
    """As `_inside.py` reads them."""
    cgroups: Sequence[str]
    pass_fds: Sequence[int]
    end_fd: int
    """Where the sandbox's first command hears of its end."""
    own_user: bool
    """The sandbox has a user namespace."""

    def enter(self, init_fd: int, output_fd: int, entered_fd: int) -> None:
        """Into the namespaces of the process that `init_fd` names. Its pid comes through `entered_fd`."""
        request = {
            "orders": self.orders,
            "arguments": list(self.arguments),
            "cgroups": list(self.cgroups),
            "namespaces": NAMESPACES | (NEW_USER if self.own_user else 0),
        }
        self.zygote.copy(request, (init_fd, output_fd, self.end_fd, entered_fd, *self.pass_fds))
