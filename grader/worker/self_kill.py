"""Ends this process by SIGSYS if it sends itself a signal that could have come from outside.

SIGKILL and SIGTERM are also what an operator and the kernel's OOM killer send, and a process that is ended by them says
nothing about the submission in it. SIGSYS can only be its own doing. A seccomp filter recognises the calls.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD_WORD, JUMP, JUMP_EQUAL, RETURN = 0x20, 0x05, 0x15, 0x06
"""Instructions, from linux/bpf_common.h."""
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000
ARGUMENTS = (16, 24, 32)
"""Offsets of the low words of the first arguments in struct seccomp_data, on a little-endian machine."""
CALLS = {
    "x86_64": {62: 1, 200: 1, 129: 1, 234: 2, 297: 2},
    "aarch64": {129: 1, 130: 1, 138: 1, 131: 2, 240: 2},
}
"""Numbers of kill, tkill, rt_sigqueueinfo, tgkill and rt_tgsigqueueinfo: which argument is the signal. The first one is
the receiver."""


def forbid_self_kill() -> None:
    """Install the filter in this thread and those that it starts, if the kernel has seccomp.

    Processes that this one starts have the filter too: they may not end this one either.
    """
    calls = CALLS.get(platform.machine())
    if calls is not None:
        program = filter_program(calls, os.getpid())
        code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
        ctypes.CDLL(None).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0)


def filter_program(calls: dict[int, int], pid: int) -> bytes:
    """Return the filter for the process `pid`, as classic BPF."""
    receivers = [value & 0xFFFFFFFF for value in (pid, -pid, 0, -1)]  # it, its group, the sender's group, everyone
    judge = [
        (JUMP_EQUAL, 2, 0, signal.SIGKILL),
        (JUMP_EQUAL, 1, 0, signal.SIGTERM),
        (RETURN, 0, 0, ALLOW),
        (LOAD_WORD, 0, 0, ARGUMENTS[0]),
        *((JUMP_EQUAL, len(receivers) - index, 0, value) for index, value in enumerate(receivers)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL_PROCESS),
    ]
    code = [(LOAD_WORD, 0, 0, 0)]
    for index, (number, argument) in enumerate(calls.items()):
        ahead = 3 * (len(calls) - index - 1) + 1
        code += [(JUMP_EQUAL, 0, 2, number), (LOAD_WORD, 0, 0, ARGUMENTS[argument]), (JUMP, 0, 0, ahead)]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in [*code, *judge])
