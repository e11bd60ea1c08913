"""Attacks on what lies outside of the sandbox: files, environment, network, other processes."""

import os
from pathlib import Path

from grader.verdict.models import Status

ROOT = Path(__file__).parents[2]
PROBLEM = ROOT / "tests" / "cases" / "problems" / "scale_bias_relu.py"
RUN_LOST = {Status.CRASHED, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.RUNTIME_ERROR}


LOOT = """
def attack():
    loot = []
    for path in PATHS:
        try:
            with open(path, "rb") as file:
                loot.append((path, file.read(16)))
        except OSError:
            pass
    assert not loot, f"read {loot}"
"""
"""Raises, which shows in the verdict, if it can read any of the files."""


def reads(*paths: Path | str) -> str:
    return f"PATHS = {[str(path) for path in paths]!r}\n{LOOT}"


# name: (source with `attack`, which runs in every forward; permitted statuses)
ATTACKS = {
    "reads_the_graders_files": (
        reads(
            *sorted((ROOT / "grader" / "grading").rglob("*.py")),
            ROOT / "reference_solutions" / "cpu" / "conv2d_mul_leaky_relu_gelu.py",
            ROOT / "submissions" / "magpie" / "conv2d_mul_leaky_relu_gelu__cpu_erf.py",
            ROOT / "problems" / "conv2d_mul_leaky_relu_gelu.py",
            ROOT / "grader.db",
            Path(__file__),
            PROBLEM,
            Path.home() / ".ssh" / "id_rsa",
            "/etc/shadow",
            "/proc/1/environ",
            f"/proc/{os.getpid()}/environ",
            f"/proc/{os.getpid()}/maps",
        ).replace('"/proc/1/environ"', '"/proc/1/root/etc/shadow"'),
        {Status.CORRECT},
    ),
    "reads_through_symlinks_and_descriptors": (
        f"""
        def attack():
            os.symlink({str(PROBLEM)!r}, "/tmp/link") if not os.path.lexists("/tmp/link") else None
            found = []
            for path in ("/tmp/link", "/proc/self/root{PROBLEM}", "/proc/self/cwd/../../../../..{PROBLEM}"):
                try:
                    found.append(open(path).read(10))
                except OSError:
                    pass
            for descriptor in os.listdir("/proc/self/fd"):
                try:
                    target = os.readlink(f"/proc/self/fd/{{descriptor}}")
                except OSError:
                    continue
                if {str(ROOT)!r} in target or target.endswith(".db"):
                    found.append(target)
            assert not found, found
        """,
        {Status.CORRECT},
    ),
    "environment": (
        """
        def attack():
            kept = {name: value for name, value in os.environ.items() if "SECRET" in name or "TOKEN" in name}
            assert not kept, kept
        """,
        {Status.CORRECT},
    ),
    "network": (
        """
        def attack():
            for family, address in (
                (socket.AF_INET, ("127.0.0.1", 22)), (socket.AF_INET, ("1.1.1.1", 53)),
                (socket.AF_INET6, ("::1", 22)), (40, (2, 1024)),
            ):
                try:
                    with socket.socket(family, socket.SOCK_STREAM) as sock:
                        sock.settimeout(1)
                        sock.connect(address)
                except OSError:
                    continue
                raise AssertionError(f"reached {address}")
        """,
        {Status.CORRECT},
    ),
    "ptrace_and_namespaces": (
        """
        libc = ctypes.CDLL(None, use_errno=True)

        def attack():
            done = [name for name, call in {
                "ptrace": lambda: libc.ptrace(16, os.getppid(), 0, 0),
                "unshare": lambda: libc.unshare(0x10000000),
                "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
                "keyctl": lambda: libc.syscall(250, 0, -3, 0),
                "bpf": lambda: libc.syscall(321, 0, 0, 0),
                "io_uring": lambda: libc.syscall(425, 1, 0),
                "userfaultfd": lambda: libc.syscall(323, 0),
                "setuid": lambda: libc.setuid(0),
            }.items() if call() >= 0]
            assert not done, done
        """,
        {Status.CORRECT},
    ),
    # The only other processes are the sandbox's first commands, which newer kernels protect from it.
    "signals_all_processes": ("def attack():\n    os.kill(-1, signal.SIGKILL)", {*RUN_LOST, Status.CORRECT}),
    "signals_the_referee": (
        f"""
        def attack():
            for pid in ({os.getpid()}, {os.getppid()}):
                try:
                    os.kill(pid, signal.SIGTERM)
                except OSError:
                    pass
        """,
        {Status.CORRECT},
    ),
}
