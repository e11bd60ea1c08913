"""A separate real uid for each concurrent sandbox, so that none can signal or be counted as another."""

import errno
import os
import socket
import threading
from contextlib import ExitStack, suppress

from grader.errors import SandboxError

FIRST = 2_000_000
"""The lowest uid: far from the usual ranges of passwd and subuid. It needs no entry anywhere."""
_SLOTS = 1000
"""Number of uids."""

_last_used = FIRST
_lock = threading.Lock()


class UserId:
    """Holds a uid until released.

    An abstract socket locks it, which the kernel frees however the holder ends.
    """

    def __init__(self) -> None:
        global _last_used
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        owners = _owners_of_processes()
        with _lock:
            for step in range(1, _SLOTS + 1):
                # Not the lowest free one, so that the next sandbox finds nothing of the last, whatever went wrong.
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
        """Make the uid available again."""
        self._socket.close()


def _owners_of_processes() -> set[int]:
    """Return the uids of all processes: a killed grader without a pid namespace leaves some behind."""
    owners = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(FileNotFoundError):
                owners.add(entry.stat().st_uid)
    return owners


def is_root() -> bool:
    """Return whether the grader runs as root."""
    return os.geteuid() == 0


def own_user_id(kept: ExitStack) -> int | None:
    """Return a uid for one sandbox, which `kept` releases; None for an ordinary user, who has no other."""
    if not is_root():
        return None
    user = UserId()
    kept.callback(user.release)
    return user.number
