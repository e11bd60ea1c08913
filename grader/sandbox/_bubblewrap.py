"""The default sandbox: bubblewrap with a new namespace of every kind.

As root, bubblewrap alone is not a sandbox: it keeps capabilities, and in a user namespace the kernel's uid would still
be 0. So for root the inner launcher changes to another real uid. An ordinary user gets a user namespace.
"""

import base64
import os
import select
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from grader.errors import SandboxUnavailable
from grader.sandbox import _mounts
from grader.sandbox._base import NO_ENVIRONMENT, Sandbox
from grader.sandbox._cgroup import Cgroup, Hierarchies
from grader.sandbox._launch import Start, launch
from grader.sandbox._process import SandboxedProcess
from grader.sandbox._seccomp import program
from grader.sandbox._spawn import Pipe, inner_environment
from grader.sandbox._user_id import is_root, own_user_id
from grader.sandbox._values import Limits
from grader.sandbox._zygote import Copy, CopyOf

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
        command: Sequence[str] | CopyOf,
        *,
        limits: Limits,
        gpu: bool,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] = NO_ENVIRONMENT,
        readonly: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> SandboxedProcess:
        with ExitStack() as starting, ExitStack() as kept:
            user_id = own_user_id(kept)
            cgroup = Cgroup(self._hierarchies, limits)
            kept.callback(cgroup.remove)
            info, files, end = Pipe(), _mounts.Files(), Pipe()
            for opened in (info, files, end):
                starting.callback(opened.close)
            own_uid = os.getuid() if user_id is None else user_id
            mounts = _mounts.arguments(limits, own_uid, readonly, hidden, gpu, files)
            filter_fd = files.add(program())
            restrictions = self._restrictions(limits, user_id, gpu=gpu)
            copy, inherited, orders = None, pass_fds, dict[str, Any]()
            if isinstance(command, CopyOf):  # it is not bubblewrap's child, so that it has no filter from there
                of_copy = {**restrictions, "seccomp": base64.b64encode(program()).decode()}
                copy = Copy(command, of_copy, cgroup.folders, pass_fds, end.write_fd, own_user=not is_root())
                inherited, orders = [end.read_fd], {"end_fd": end.read_fd}
            else:
                orders = {"argv": list(command), "environment": inner_environment("/tmp", environment, gpu=gpu)}
            start = Start(
                command=[
                    *cgroup.join_command,
                    *(self._bubblewrap, *(_AS_USER if user_id is None else _AS_ROOT), *_ALWAYS),
                    *("--info-fd", str(info.write_fd), *mounts, "--seccomp", filter_fd, "--"),
                ],
                orders={**restrictions, **orders, "keep_fds": list(inherited)},
                # Both ends of `info`: with the grader as the only reader, the grader's death would end bubblewrap by
                # SIGPIPE at a moment when its child, without orders, would wait forever.
                pass_fds=(*inherited, *files.fds, info.write_fd, info.read_fd),
                copy=copy,
            )
            launched = launch(start, info)
            clean_up = kept.pop_all().close
        return SandboxedProcess(launched, limits, NamespaceTree(launched.pid_fd), cgroup, clean_up=clean_up)

    def _restrictions(self, limits: Limits, user_id: int | None, *, gpu: bool) -> dict[str, Any]:
        """What the inner launcher gives up, in the form that `_inside.py` reads."""
        return {
            "directory": "/tmp",
            "user_id": user_id,
            "parent_pid": None,
            "rlimits": limits.rlimits(memory=not gpu and "memory" not in self._hierarchies, processes=True),
            "landlock_read": ["/"],
            "landlock_write": ["/tmp", "/dev", "/proc"],  # CUDA names its threads through /proc
            "seccomp": None,
        }


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
