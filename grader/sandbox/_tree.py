"""All processes of one sandbox, to be ended together."""

import os
import select
import signal
from contextlib import suppress
from typing import Protocol


class Tree(Protocol):
    """All processes of one sandbox."""

    def kill(self) -> None:
        """SIGKILL to all of them; harmless when they are gone."""

    def wait_gone(self, timeout_seconds: float) -> bool:
        """Whether nothing is left of it."""


class NamespaceTree:
    """A pid namespace: killing its init kills all, and the kernel lets init go only after the last of them."""

    def __init__(self, init_fd: int) -> None:
        self._init_fd = init_fd

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)

    def wait_gone(self, timeout_seconds: float) -> bool:
        poller = select.poll()
        poller.register(self._init_fd, select.POLLIN)
        if not poller.poll(timeout_seconds * 1000):
            return False
        with suppress(ChildProcessError):  # ours to bury only where we are the reaper, as pid 1 of a container is
            os.waitid(os.P_PIDFD, self._init_fd, os.WEXITED | os.WNOHANG)
        return True
