"""Compares the system call table with the kernel's headers, and checks the program made from it."""

import platform
import re
import struct
from pathlib import Path

import pytest

from grader.errors import SandboxUnavailable
from grader.sandbox._policy import DENIED, LAST_KNOWN_SYSCALL
from grader.sandbox._seccomp import program

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_the_kernels(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"needs the kernel's headers: {HEADERS[machine]}")
    text = HEADERS[machine].read_text()
    kernel = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", text, re.M)}
    ours = {row.name: row.x86_64 if machine == "x86_64" else row.aarch64 for row in DENIED}
    newer_than_headers = {"open_tree_attr"}
    assert {name: number for name, number in ours.items() if number != kernel.get(name)}.keys() <= newer_than_headers


@pytest.mark.parametrize("machine", HEADERS)
def test_program_is_well_formed(machine: str) -> None:
    code = list(struct.iter_unpack("=HBBI", program(machine)))
    assert len(code) < 4096
    for index, (operation, if_true, if_false, _) in enumerate(code):
        if operation & 7 == 5:
            assert index + 1 + max(if_true, if_false) < len(code)
    assert code[-1][0] == 6
    assert all(number is None or number <= LAST_KNOWN_SYSCALL for row in DENIED for number in (row.x86_64, row.aarch64))


def test_unknown_machine_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        program("riscv64")


@pytest.mark.skipif(platform.machine() not in HEADERS, reason="no table for this machine")
def test_default_is_this_machine() -> None:
    assert program() == program(platform.machine())
