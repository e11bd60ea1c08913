"""Assembles the deny list into a classic BPF program of 8 bytes per instruction."""

import platform
import struct
from errno import ENOSYS
from functools import cache

from grader.errors import SandboxUnavailable
from grader.sandbox._policy import AUDIT_ARCH, DENIED, LAST_KNOWN_SYSCALL, X32_BIT, Denied, When

# linux/bpf_common.h
_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_GREATER = 0x25
_JUMP_GREATER_EQUAL = 0x35
_JUMP_BITS = 0x45
_RETURN = 0x06

# linux/seccomp.h; struct seccomp_data is nr, arch, instruction pointer, six 64-bit arguments
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000
_NUMBER_OFFSET = 0
_ARCH_OFFSET = 4
_ARGUMENT_OFFSET = (16, 24)  # low words, on a little-endian machine

_Instruction = tuple[int, int, int, int]


@cache
def program(machine: str = platform.machine()) -> bytes:
    """Return the filter for `machine`, for PR_SET_SECCOMP or bubblewrap's --seccomp.

    Raises SandboxUnavailable for an unknown machine.
    """
    if machine not in AUDIT_ARCH:
        raise SandboxUnavailable(f"seccomp: no system call table for {machine}; known: {', '.join(AUDIT_ARCH)}")
    code: list[_Instruction] = [
        (_LOAD_WORD, 0, 0, _ARCH_OFFSET),
        (_JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD_WORD, 0, 0, _NUMBER_OFFSET),
        (_JUMP_GREATER_EQUAL, 0, 1, X32_BIT),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_JUMP_GREATER, 0, 1, LAST_KNOWN_SYSCALL),
        (_RETURN, 0, 0, _ERRNO | ENOSYS),
    ]
    for row in DENIED:
        number = row.x86_64 if machine == "x86_64" else row.aarch64
        if number is not None:
            code += _refusal(row, number)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _refusal(row: Denied, number: int) -> list[_Instruction]:
    """Return the code of one row, which falls through unless the call and its argument match.

    It reloads the call's number if it has overwritten it.
    """
    refuse = (_RETURN, 0, 0, _ERRNO | row.errno)
    if row.when is When.ALWAYS:
        return [(_JUMP_EQUAL, 0, 1, number), refuse]
    condition: list[_Instruction] = {
        When.FLAGS: [(_LOAD_WORD, 0, 0, _ARGUMENT_OFFSET[0]), (_JUMP_BITS, 0, 1, row.value), refuse],
        When.NOT: [(_LOAD_WORD, 0, 0, _ARGUMENT_OFFSET[0]), (_JUMP_EQUAL, 1, 0, row.value), refuse],
        When.OPTION: [(_LOAD_WORD, 0, 0, _ARGUMENT_OFFSET[0]), (_JUMP_EQUAL, 0, 1, row.value), refuse],
        When.REQUEST: [(_LOAD_WORD, 0, 0, _ARGUMENT_OFFSET[1]), (_JUMP_EQUAL, 0, 1, row.value), refuse],
    }[row.when]
    return [(_JUMP_EQUAL, 0, len(condition) + 1, number), *condition, (_LOAD_WORD, 0, 0, _NUMBER_OFFSET)]
