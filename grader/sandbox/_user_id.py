"""One real uid for each sandbox that runs at the same time, so that no two can signal or count as each other."""

import errno
import os
import socket
import threading
from contextlib import suppress

from grader.errors import SandboxError

FIRST = 2_000_000  # far from passwd's and subuid's usual ranges; needs no entry anywhere
_SLOTS = 1000

_last_used = FIRST
_lock = threading.Lock()


class UserId:
    """Holds a uid until released. An abstract socket locks it: the kernel frees that however its holder dies."""

    def __init__(self) -> None:
        global _last_used
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        owners = _owners_of_processes()
        with _lock:
            for step in range(1, _SLOTS + 1):
                # Not the lowest free one: what comes after a sandbox should find nothing of it, whatever went wrong.
                candidate = FIRST + (_last_used - FIRST + step) % _SLOTS
                if candidate in owners:
                    continue
                try:
                    self._socket.bind(f"\0grader-sandbox-uid-{candidate}")
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        self._socket.close()
                        raise SandboxError(f"uid {candidate} cannot be locked: {error}") from error
                else:
                    _last_used = self.number = candidate
                    return
        self._socket.close()
        raise SandboxError(f"all {_SLOTS} sandbox uids are in use; end some sandboxes first")

    def release(self) -> None:
        self._socket.close()


def _owners_of_processes() -> set[int]:
    """A killed grader without a pid namespace leaves processes behind: their uid is not given out again."""
    owners = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(FileNotFoundError):
                owners.add(entry.stat().st_uid)
    return owners


def is_root() -> bool:
    return os.geteuid() == 0
