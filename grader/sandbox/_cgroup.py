"""One cgroup per sandbox, for memory, process count and stopping it, where the kernel permits it.

Memory and process count are limited in version 1 or 2. Only version 2 has a freezer that a sandbox can be killed in.
"""

import errno
import os
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from grader.errors import SandboxError
from grader.sandbox._values import Limits

_PREFIX = f"grader-{Path('/proc/self/ns/pid').stat().st_ino}-"
"""Contains the pid namespace: a grader in another container may share the hierarchy, but not the pids."""
_OWN_PROCESSES = 3
"""Processes beside the command's: bubblewrap outside, its reaper inside, and a first command that only waits."""

Hierarchies = dict[str, Path]
"""Controller to the folder in which groups can be created: "memory", "pids" and FREEZER. In version 2 it is one."""
FREEZER = "freezer"
"""`cgroup.freeze`, which every group of version 2 has, also beside controllers of version 1."""


def find() -> Hierarchies:
    """Return the usable hierarchies, tested by creating and joining a group: permissions do not suffice."""
    hierarchies: Hierarchies = {}
    for controller in ("memory", "pids", FREEZER):
        for parent in [*hierarchies.values(), *_candidates(controller)]:
            if _works(parent, controller):
                hierarchies[controller] = parent
                _remove_stale(parent)
                break
    return hierarchies


class Cgroup:
    """A group for one sandbox, empty until the sandbox's first process joins it."""

    def __init__(self, hierarchies: Hierarchies, limits: Limits) -> None:
        name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self._groups = {controller: parent / name for controller, parent in hierarchies.items()}
        try:
            for group in set(self._groups.values()):
                group.mkdir()
            if memory := self._groups.get("memory"):
                _limit_memory(memory, limits.memory_bytes)
            if pids := self._groups.get("pids"):
                (pids / "pids.max").write_text(str(limits.process_count + _OWN_PROCESSES))
        except OSError as error:
            self.remove()
            raise SandboxError(f"cgroup {name}: {error}; is another program changing this hierarchy?") from error

    @property
    def folders(self) -> list[str]:
        """Folders of the group; a process joins by writing 0 to `cgroup.procs` in each."""
        return sorted(map(str, set(self._groups.values())))

    @property
    def join_command(self) -> list[str]:
        """A command prefix that joins and then execs the rest, so that nothing is forked outside of the group."""
        script = "".join(f"echo 0 >'{group}/cgroup.procs' && " for group in self.folders)
        return ["/bin/sh", "-c", script + 'exec "$@"', "sh"] if script else []

    @property
    def freezer(self) -> Path | None:
        """The folder with `cgroup.freeze`, if this group has one."""
        return self._groups.get(FREEZER)

    def members(self) -> set[int]:
        """Return the pids of all processes in the group, including bubblewrap's; none once it is removed.

        The file is opened each time, because version 1 reads its list once.
        """
        try:
            text = Path(self.folders[0], "cgroup.procs").read_text()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
            return set()
        return {int(pid) for pid in text.split()} - {0}  # 0: outside of this pid namespace

    def short_of_memory(self) -> Literal["group", "host"] | None:
        """Return what lacked memory when the kernel killed a process of this group; None if it killed none.

        The kernel counts what it kills in a group for any lack of memory, a container's or the machine's too.
        """
        group = self._groups.get("memory")
        if group is None:
            return None
        files = (group / "memory.events", group / "memory.oom_control")
        if not any(_fields(file).get("oom_kill") for file in files if file.exists()):
            return None
        return "group" if _reached_its_limit(group) else "host"

    def thaw(self) -> None:
        """Let the group's processes run: a frozen bubblewrap does not see its child end."""
        if self.freezer is not None:
            with suppress(OSError):
                (self.freezer / "cgroup.freeze").write_text("0")

    def kill(self) -> None:
        """Kill every member until there is none. This ends, because pids.max also limits a fork bomb."""
        for group in set(self._groups.values()):
            with suppress(OSError):
                _kill_members(group)

    def remove(self) -> None:
        """Remove the group. Raises SandboxError.

        The kernel keeps a group busy for some milliseconds after its last process.
        """
        for group in set(self._groups.values()):
            deadline = time.monotonic() + 5
            while group.exists():
                try:
                    group.rmdir()
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise SandboxError(f"cgroup {group} cannot be removed: {error}") from error
                    time.sleep(0.002)


def _fields(file: Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}


def _reached_its_limit(group: Path) -> bool:
    """Return whether the group's own limit left no memory, and not one above it.

    Version 1 does not count that, but keeps the largest use, which is then within some pages of the limit.
    """
    if (group / "memory.events").exists():
        return _fields(group / "memory.events")["oom"] > 0
    used, limit = (int((group / f"memory.{name}_in_bytes").read_text()) for name in ("max_usage", "limit"))
    return used > 0.99 * limit


def _candidates(controller: str) -> list[Path]:
    """Return folders to try: in version 1 the own group, in 2 the nearest ancestor with the controller."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            own[name] = path
    candidates = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, described = line.partition(" - ")
        root, mount = fields.split()[3:5]
        kind, _, options = described.split(maxsplit=2)
        if kind == "cgroup" and controller in options.split(","):
            candidates.append(_below(Path(mount), root, own.get(controller, "/")))
        elif kind == "cgroup2":
            nearest = _below(Path(mount), root, own.get("", "/"))
            ancestors = [path for path in nearest.parents if path.is_relative_to(mount)]
            candidates += [
                path for path in (nearest, *ancestors) if controller == FREEZER or _hands_on(path, controller)
            ]
    return candidates


def _below(mount: Path, root: str, own: str) -> Path:
    """Return the own group's folder; in a container the mount may show only the hierarchy below `root`."""
    inside = own.removeprefix(root) if root != "/" else own
    path = mount / inside.lstrip("/")
    return path if path.is_dir() else mount


def _hands_on(path: Path, controller: str) -> bool:
    try:
        if controller not in (path / "cgroup.controllers").read_text().split():
            return False
        if controller not in (path / "cgroup.subtree_control").read_text().split():
            (path / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return False
    return True


def _works(parent: Path, controller: str) -> bool:
    group = parent / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        group.mkdir()
    except OSError:
        return False
    try:
        if controller == "memory":
            _limit_memory(group, 1 << 30)
        elif controller == FREEZER:
            (group / "cgroup.freeze").write_bytes(b"0")  # fails in version 1, where no file can be created
        else:
            (group / "pids.max").write_text("100")
        join = ["/bin/sh", "-c", 'echo 0 >"$1/cgroup.procs"', "sh", str(group)]
        return subprocess.run(join, check=False, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        with suppress(OSError):
            group.rmdir()


def _kill_members(group: Path) -> None:
    for _ in range(100):
        members = (group / "cgroup.procs").read_text().split()
        if not members:
            break
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(int(member), signal.SIGKILL)
        time.sleep(0.002)


def _limit_memory(group: Path, limit_bytes: int) -> None:
    if (group / "memory.max").exists():
        (group / "memory.max").write_text(str(limit_bytes))
        swap, swap_bytes = group / "memory.swap.max", 0
    else:
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        swap, swap_bytes = group / "memory.memsw.limit_in_bytes", limit_bytes  # counts memory and swap together
    if swap.exists():
        swap.write_text(str(swap_bytes))


def _remove_stale(parent: Path) -> None:
    """Remove the groups of killed graders, with any processes outside a namespace."""
    for group in parent.glob(f"{_PREFIX}*"):
        if not Path("/proc", group.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            with suppress(OSError):
                _kill_members(group)
                group.rmdir()
