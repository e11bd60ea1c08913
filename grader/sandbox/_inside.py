"""The first command inside a sandbox: trusted code, the last that runs before the untrusted command.

It runs as `python -I -S -c <this file> GO_FD STATUS_FD`, so it imports nothing of ours. It reports "r" when it is
alive, reads its orders until end of file, gives up every privilege, reports what it applied as a line of JSON, and
becomes the command. A grader that dies before the orders are complete leaves an end of file without the closing
newline, and then nothing is run: bubblewrap's --die-with-parent alone has a race there.

Where the command is a zygote's copy (`_copying.py`), which comes into the sandbox by itself and gives up its privileges
by `restrict` too, this process becomes none: it waits to be told how the copy ended, and ends the same way.
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
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522

# linux/landlock.h; the three calls have the same numbers on every architecture
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
READ_RIGHTS = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory
FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # those that a rule on a plain file may name
RIGHTS_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}  # from 5 on device ioctls: not handled, CUDA's
NETWORK_RIGHTS = 3  # bind and connect TCP, ABI 4
SCOPES = 3  # abstract unix sockets and signals, ABI 6

LOST = 126
"""The status where nobody is left who would give orders, or tell how a copy ended."""

libc = ctypes.CDLL(None, use_errno=True)


def main(go_fd: int, status_fd: int) -> None:
    os.write(status_fd, b"r")
    orders = read_orders(go_fd)
    try:
        applied = restrict(orders, {0, 1, 2, status_fd, *orders["keep_fds"]})
        os.set_inheritable(status_fd, False)
        os.write(status_fd, json.dumps({"applied": applied}).encode() + b"\n")
        if "end_fd" in orders:
            os.close(status_fd)
            os._exit(int(os.read(orders["end_fd"], 16) or LOST))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would pass that on
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(orders["argv"][0], orders["argv"], orders["environment"])
    except (OSError, ValueError) as error:
        os.write(status_fd, json.dumps({"error": f"{orders['argv'][0]}: {error}"}).encode() + b"\n")
    os._exit(127)


def read_orders(go_fd: int) -> dict[str, Any]:
    text = b""
    while chunk := os.read(go_fd, 1 << 16):
        text += chunk
    if not text.endswith(b"\n"):
        os._exit(LOST)
    orders: dict[str, Any] = json.loads(text)
    return orders


def restrict(orders: dict[str, Any], keep_fds: set[int]) -> list[str]:
    """Each step may take away what an earlier one needed: the order matters."""
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
    no_capabilities = struct.pack("=II", CAPABILITY_VERSION_3, 0), bytes(24)  # setresuid leaves the inheritable ones
    check(libc.capset(*no_capabilities), "capabilities")
    check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")  # else /proc/self belongs to root, and CUDA writes there
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no-new-privileges")
    applied.append("no-new-privileges")
    if orders["parent_pid"] is not None:
        check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent-death signal")
        if os.getppid() != orders["parent_pid"]:
            os._exit(LOST)
    if landlock(orders["landlock_read"], orders["landlock_write"]):
        applied.append("landlock")
    if orders["seccomp"] is not None:
        seccomp(base64.b64decode(orders["seccomp"]))
        applied.append("seccomp")
    return applied


def close_others(keep_fds: set[int]) -> None:
    start = 0
    for fd in [*sorted(keep_fds), (1 << 31) - 1]:
        if start < fd:  # Python 3.11 takes an empty range for everything
            os.closerange(start, fd)
        start = fd + 1
    for fd in keep_fds - {0, 1, 2}:
        os.set_inheritable(fd, True)


def drop_capabilities() -> None:
    """From the bounding set, so that exec gives none back, uid 0 or not. Fails at once for those who hold none."""
    capability = 0
    while libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1


def become(user_id: int) -> None:
    """Another real uid: the kernel's own checks hold then, whatever a user namespace would have mapped."""
    os.setgroups([])
    os.setresgid(user_id, user_id, user_id)
    os.setresuid(user_id, user_id, user_id)


def landlock(read: Sequence[str], write: Sequence[str]) -> bool:
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
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
