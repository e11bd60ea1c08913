"""A sandbox with reduced isolation, for machines without bubblewrap; used only if requested by name.

There are no namespaces: Landlock alone protects the file system, if the kernel has it, and other processes are visible.
The command adopts every orphan below it. What it leaves behind when it ends by itself is found by uid (as root) or
cgroup, otherwise only within its session.
"""

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from grader.errors import SandboxError, SandboxUnavailable
from grader.sandbox import _mounts
from grader.sandbox._base import NO_ENVIRONMENT, Sandbox
from grader.sandbox._cgroup import Cgroup, Hierarchies
from grader.sandbox._launch import Start, launch
from grader.sandbox._process import SandboxedProcess
from grader.sandbox._seccomp import program
from grader.sandbox._spawn import inner_environment
from grader.sandbox._user_id import is_root, own_user_id
from grader.sandbox._values import PYTHON, Limits
from grader.sandbox._zygote import CopyOf

_READABLE = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/proc")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_ENDED = "ZX"
"""States of ended threads in /proc/PID/task/TID/stat."""


class Weak(Sandbox):
    """Uses rlimits, a session, a uid, no new privileges, seccomp and Landlock, as far as they work."""

    name = "weak"

    def __init__(self, hierarchies: Hierarchies) -> None:
        self._hierarchies = hierarchies
        self.layers = ()

    def spawn(
        self,
        command: Sequence[str] | CopyOf,
        *,
        limits: Limits,
        gpu: bool,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] = NO_ENVIRONMENT,
        readonly: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> SandboxedProcess:
        """Start a command. `hidden`, `scratch_bytes` and `shared_memory_bytes` need mounts and have no effect."""
        if isinstance(command, CopyOf):
            raise SandboxError("no process can join the weak sandbox")
        visible = [*_mounts.interpreter(), *readonly, *(_mounts.library_path() if gpu else [])]
        if is_root():
            _require_reachable([Path(PYTHON), *visible])
        with ExitStack() as kept:
            user_id = own_user_id(kept)
            scratch = tempfile.mkdtemp(prefix=f"grader-weak-{os.getpid()}-")
            kept.callback(shutil.rmtree, scratch, ignore_errors=True)
            if user_id is not None:
                os.chown(scratch, user_id, user_id)
            cgroup = Cgroup(self._hierarchies, limits)
            kept.callback(cgroup.remove)
            devices = [*_DEVICES, *(_mounts.gpu_devices() if gpu else [])]
            read = [*_mounts.SYSTEM, *_mounts.CONFIGURATION, *_READABLE, *map(str, visible)]
            start = Start(
                command=cgroup.join_command,
                orders={
                    "argv": list(command),
                    "environment": inner_environment(scratch, environment, gpu=gpu),
                    "directory": scratch,
                    "keep_fds": list(pass_fds),
                    "user_id": user_id,
                    "parent_pid": os.getpid(),
                    "rlimits": limits.rlimits(
                        memory=not gpu and "memory" not in self._hierarchies, processes=user_id is not None
                    ),
                    "landlock_read": read,
                    "landlock_write": [scratch, "/proc/self", *devices],
                    "seccomp": base64.b64encode(program()).decode(),
                },
                pass_fds=tuple(pass_fds),
            )
            launched = launch(start)
            clean_up = kept.pop_all().close
        tree = _SessionTree(launched.pid, user_id, cgroup)
        return SandboxedProcess(launched, limits, tree, cgroup, clean_up=clean_up)


class _SessionTree:
    """The processes of a sandbox without namespaces, as far as they can be found."""

    def __init__(self, pid: int, user_id: int | None, cgroup: Cgroup) -> None:
        self._pid = pid
        self._user_id = user_id
        self._cgroup = cgroup

    def kill(self) -> None:
        """Kill all that descends from the command, then its session, the cgroup and all processes of the uid."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGSTOP)  # last of all, since it adopts the others
            _kill_below(self._pid)
            os.killpg(self._pid, signal.SIGKILL)
        self._cgroup.kill()
        if self._user_id is not None:
            # One system call kills all processes of the uid, so none can escape by forking.
            subprocess.run(
                ["/bin/sh", "-c", "kill -9 -1"],
                check=False,  # it fails if no process is left
                capture_output=True,
                cwd="/",
                user=self._user_id,
                group=self._user_id,
                extra_groups=[],
            )

    def wait_gone(self, timeout_seconds: float) -> bool:
        """Wait until no process of the uid or session runs.

        One that has ended and is not reaped, as where a container's first process reaps nobody, does not.
        """
        deadline = time.monotonic() + timeout_seconds
        while any(self._is_ours(entry) and _runs(entry) for entry in os.scandir("/proc") if entry.name.isdigit()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def _is_ours(self, process: os.DirEntry[str]) -> bool:
        try:
            if self._user_id is not None:
                return process.stat().st_uid == self._user_id
            return os.getpgid(int(process.name)) == self._pid
        except (FileNotFoundError, ProcessLookupError):
            return False


def _kill_below(pid: int) -> None:
    """Kill the descendants of a stopped process that adopts orphans, until none runs or they appear too fast."""
    for _ in range(100):
        parents = dict(filter(None, map(_parent, os.scandir("/proc"))))
        below = {pid}
        while more := {child for child, parent in parents.items() if parent in below} - below:
            below |= more
        if below == {pid}:
            break
        for child in below - {pid}:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def _parent(process: os.DirEntry[str]) -> tuple[int, int] | None:
    """Return (pid, pid of the parent) of a process that has not ended."""
    with suppress(OSError, ValueError):
        state, parent = Path(process.path, "stat").read_text().rpartition(")")[2].split()[:2]
        return None if state in _ENDED else (int(process.name), int(parent))
    return None


def _runs(process: os.DirEntry[str]) -> bool:
    """Whether a thread of the process is left: the first may have ended before the others."""
    for stat in Path(process.path, "task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if stat.read_text().rpartition(")")[2].split()[0] not in _ENDED:
                return True
    return False


def _require_reachable(paths: Iterable[Path]) -> None:
    """Raise SandboxUnavailable unless another uid can reach the paths.

    A sandbox with root's uid is not an option: `kill -9 -1` in it would end every process of the machine.
    """
    for path in paths:
        for folder in (path.resolve(), *path.resolve().parents):
            if not folder.stat().st_mode & 0o001:
                raise SandboxUnavailable(
                    f"weak, as root, needs another uid, and that cannot reach {path}: "
                    f"`chmod o+x {folder}`, or have it elsewhere"
                )
