"""The default sandbox: bubblewrap with a new namespace of every kind.

As root, bubblewrap alone is not a sandbox: it keeps capabilities, and in a user namespace the kernel's uid would still
be 0. So for root the inner launcher changes to another real uid. An ordinary user gets a user namespace.
"""

import base64
import os
import select
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from grader.errors import SandboxUnavailable
from grader.sandbox import _mounts
from grader.sandbox._base import NO_ENVIRONMENT, Sandbox
from grader.sandbox._cgroup import Cgroup, Hierarchies
from grader.sandbox._launch import Plan, launch
from grader.sandbox._process import SandboxedProcess
from grader.sandbox._seccomp import program
from grader.sandbox._spawn import Pipe, inner_environment
from grader.sandbox._user_id import UserId, is_root
from grader.sandbox._values import Limits
from grader.sandbox._zygote import Copy, Zygote

_AS_ROOT = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
)
_AS_USER = ("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL")
_ALWAYS = ("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox")


def find_bubblewrap() -> str:
    """Return GRADER_BWRAP, or bwrap on the PATH. Raises SandboxUnavailable if there is neither.

    A wrapper script must exec bubblewrap, not run it as a child.
    """
    path = os.environ.get("GRADER_BWRAP") or shutil.which("bwrap")
    if not path:
        raise SandboxUnavailable("bubblewrap is not installed: `apt-get install bubblewrap`, or set GRADER_BWRAP")
    return path


class Bubblewrap(Sandbox):
    """Works as root and as an ordinary user."""

    name = "bubblewrap"

    def __init__(self, hierarchies: Hierarchies) -> None:
        self._bubblewrap = find_bubblewrap()
        self._hierarchies = hierarchies
        self.layers = ()

    def spawn(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        gpu: bool,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] = NO_ENVIRONMENT,
        readonly: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> SandboxedProcess:
        orders = {
            "argv": list(argv),
            "environment": inner_environment("/tmp", environment, gpu=gpu),
            "keep_fds": list(pass_fds),
        }
        return self._start(limits, gpu, readonly, hidden, orders, pass_fds)

    def spawn_copy(
        self,
        zygote: Zygote,
        arguments: Sequence[str | int] = (),
        *,
        limits: Limits,
        gpu: bool,
        pass_fds: Sequence[int] = (),
        readonly: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> SandboxedProcess:
        end = Pipe()
        try:
            orders = {"end_fd": end.read_fd, "keep_fds": [end.read_fd]}
            copy = partial(Copy, zygote, arguments, pass_fds=pass_fds, end_fd=end.write_fd, own_user=not is_root())
            return self._start(limits, gpu, readonly, hidden, orders, [end.read_fd], copy)
        finally:
            end.close()

    def _start(
        self,
        limits: Limits,
        gpu: bool,
        readonly: Sequence[Path],
        hidden: Sequence[Path],
        orders: Mapping[str, Any],
        pass_fds: Sequence[int],
        copy: Callable[..., Copy] | None = None,
    ) -> SandboxedProcess:
        """Start a sandbox; `orders` are those of its first command that depend on the kind of start."""
        with ExitStack() as starting, ExitStack() as kept:
            user_id = None
            if is_root():
                user = UserId()
                kept.callback(user.release)
                user_id = user.number
            cgroup = Cgroup(self._hierarchies, limits)
            kept.callback(cgroup.remove)
            info, files = Pipe(), _mounts.Files()
            starting.callback(info.close)
            starting.callback(files.close)
            mounts = _mounts.arguments(
                limits, os.getuid() if user_id is None else user_id, readonly, hidden, gpu, files
            )
            filter_fd = files.add(program())
            restrictions = {
                "directory": "/tmp",
                "user_id": user_id,
                "parent_pid": None,
                "rlimits": limits.rlimits(memory=not gpu and "memory" not in self._hierarchies, processes=True),
                "landlock_read": ["/"],
                "landlock_write": ["/tmp", "/dev", "/proc"],  # CUDA names its threads through /proc
                "seccomp": None,
            }
            of_copy = {**restrictions, "seccomp": base64.b64encode(program()).decode()}  # not bubblewrap's child
            plan = Plan(
                command=[
                    *cgroup.join_command,
                    *(self._bubblewrap, *(_AS_USER if user_id is None else _AS_ROOT), *_ALWAYS),
                    *("--info-fd", str(info.write_fd), *mounts, "--seccomp", filter_fd, "--"),
                ],
                orders={**restrictions, **orders},
                # Both ends of `info`: with the grader as the only reader, the grader's death would end bubblewrap by
                # SIGPIPE at a moment when its child, without orders, would wait forever.
                pass_fds=(*pass_fds, *files.fds, info.write_fd, info.read_fd),
                copy=copy(orders=of_copy, cgroups=cgroup.folders) if copy is not None else None,
            )
            launched = launch(plan, info)
            clean_up = kept.pop_all().close
        return SandboxedProcess(launched, limits, NamespaceTree(launched.pid_fd), cgroup, clean_up=clean_up)


class NamespaceTree:
    """A pid namespace: killing its init kills all processes, and init ends after the last of them."""

    def __init__(self, init_fd: int) -> None:
        self._init_fd = init_fd

    def kill(self) -> None:
        """Kill init."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)

    def wait_gone(self, timeout_seconds: float) -> bool:
        """Wait until init has ended."""
        poller = select.poll()
        poller.register(self._init_fd, select.POLLIN)
        if not poller.poll(timeout_seconds * 1000):
            return False
        with suppress(ChildProcessError):  # the grader reaps init only if it is pid 1 of a container
            os.waitid(os.P_PIDFD, self._init_fd, os.WEXITED | os.WNOHANG)
        return True
