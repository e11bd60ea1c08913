"""The first command inside a sandbox: the last trusted code before the untrusted command.

It runs as `python -I -S -c <this file> GO_FD STATUS_FD`, so it imports nothing of the grader. It reports "r" when it
runs, reads its orders until end of file, gives up every privilege, reports what it applied as a line of JSON, and
becomes the command. If the grader ends before the orders are complete, they lack the closing newline, and no command is
run: bubblewrap's --die-with-parent alone has a race there.

If the command is a zygote's copy (`_copying.py`), which enters the sandbox and gives up its privileges by `restrict`
itself, this process does not become a command: it waits for the copy's status and exits with it.
"""

import base64
import ctypes
import json
import os
import resource
import signal
import stat
import struct
import sys
from collections.abc import Sequence
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522

# From linux/landlock.h; the three calls have the same numbers on every architecture.
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
READ_RIGHTS = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory
FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # those that a rule for a plain file may contain
RIGHTS_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}  # ABI 5 adds device ioctls, which CUDA needs
NETWORK_RIGHTS = 3  # bind and connect TCP, ABI 4
SCOPES = 3  # abstract unix sockets and signals, ABI 6

LOST = 126
"""Exit status if the grader ended, and with it the source of orders or of a copy's status."""

libc = ctypes.CDLL(None, use_errno=True)


def main(go_fd: int, status_fd: int) -> None:
    """Become the command, or wait for a copy."""
    os.write(status_fd, b"r")
    orders = read_orders(go_fd)
    try:
        applied = restrict(orders, {0, 1, 2, status_fd, *orders["keep_fds"]})
        os.set_inheritable(status_fd, False)
        os.write(status_fd, json.dumps({"applied": applied}).encode() + b"\n")
        if "end_fd" in orders:
            os.close(status_fd)
            os._exit(int(os.read(orders["end_fd"], 16) or LOST))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would preserve that
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(orders["argv"][0], orders["argv"], orders["environment"])
    except (OSError, ValueError) as error:
        os.write(status_fd, json.dumps({"error": f"{orders['argv'][0]}: {error}"}).encode() + b"\n")
    os._exit(127)


def read_orders(go_fd: int) -> dict[str, Any]:
    """Return the orders; exit with LOST if they are incomplete."""
    text = b""
    while chunk := os.read(go_fd, 1 << 16):
        text += chunk
    if not text.endswith(b"\n"):
        os._exit(LOST)
    orders: dict[str, Any] = json.loads(text)
    return orders


def restrict(orders: dict[str, Any], keep_fds: set[int]) -> list[str]:
    """Give up privileges, and return the layers that were applied.

    The order matters: each step may remove what an earlier one needs.
    """
    applied = []
    close_others(keep_fds)
    os.umask(0o022)
    os.chdir(orders["directory"])
    for name, value in orders["rlimits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    drop_capabilities()
    if orders["user_id"] is not None:
        become(orders["user_id"])
        applied.append("user-id")
    no_capabilities = struct.pack("=II", CAPABILITY_VERSION_3, 0), bytes(24)  # setresuid keeps the inheritable ones
    check(libc.capset(*no_capabilities), "capabilities")
    check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")  # else /proc/self, where CUDA writes, belongs to root
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no-new-privileges")
    applied.append("no-new-privileges")
    if orders["parent_pid"] is not None:
        check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent-death signal")
        check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")  # as the first process of a namespace is
        if os.getppid() != orders["parent_pid"]:
            os._exit(LOST)
    if landlock(orders["landlock_read"], orders["landlock_write"]):
        applied.append("landlock")
    if orders["seccomp"] is not None:
        seccomp(base64.b64decode(orders["seccomp"]))
        applied.append("seccomp")
    return applied


def close_others(keep_fds: set[int]) -> None:
    """Close all other descriptors, and make these inheritable."""
    start = 0
    for fd in [*sorted(keep_fds), (1 << 31) - 1]:
        if start < fd:  # Python 3.11 closes everything for an empty range
            os.closerange(start, fd)
        start = fd + 1
    for fd in keep_fds - {0, 1, 2}:
        os.set_inheritable(fd, True)


def drop_capabilities() -> None:
    """Empty the bounding set, so that exec restores no capability, not even for uid 0.

    Fails at the first capability if the process has none.
    """
    capability = 0
    while libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1


def become(user_id: int) -> None:
    """Change to another real uid, for which the kernel's own checks hold, independent of user namespaces."""
    os.setgroups([])
    os.setresgid(user_id, user_id, user_id)
    os.setresuid(user_id, user_id, user_id)


def landlock(read: Sequence[str], write: Sequence[str]) -> bool:
    """Allow access only below these paths, no TCP, and no signals to other processes.

    Returns False if the kernel lacks Landlock.
    """
    abi = libc.syscall(LANDLOCK_CREATE, None, 0, 1)
    if abi < 1:
        return False
    rights = RIGHTS_OF_ABI[min(abi, 3)]
    words = 1 + (abi >= 4) + (abi >= 6)
    attributes = struct.pack("=QQQ", rights, NETWORK_RIGHTS, SCOPES)[: 8 * words]
    ruleset = check(libc.syscall(LANDLOCK_CREATE, attributes, len(attributes), 0), "landlock")
    for paths, granted in ((read, READ_RIGHTS), (write, rights)):
        for path in paths:
            allow_beneath(ruleset, path, granted & rights)
    check(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)
    return True


def allow_beneath(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a path, if it exists."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= FILE_RIGHTS
    rule = struct.pack("=Qi", rights, fd)
    check(libc.syscall(LANDLOCK_ADD, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0), f"landlock {path}")
    os.close(fd)


def seccomp(program: bytes) -> None:
    """Install the filter."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def check(result: int, what: str) -> int:
    """Return the result of a system call. Raises OSError if it failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
