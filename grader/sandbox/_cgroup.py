"""One cgroup a sandbox, version 1 or 2, for memory and process count. Used where the kernel lets us, and only there."""

import errno
import os
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from grader.errors import SandboxError
from grader.sandbox._values import Limits

# With the pid namespace, since a grader in another container may share the hierarchy, but not our pids.
_PREFIX = f"grader-{Path('/proc/self/ns/pid').stat().st_ino}-"
_OWN_PROCESSES = 3  # bubblewrap outside, its reaper inside, and the first command where that only waits

Hierarchies = dict[str, Path]
"""Controller ("memory", "pids") to the directory below which groups can be made. In version 2 they are the same."""


def find() -> Hierarchies:
    """Tried by making a group and joining it, since permissions alone do not tell."""
    found: Hierarchies = {}
    for controller in ("memory", "pids"):
        for parent in _candidates(controller):
            if _works(parent, controller):
                found[controller] = parent
                _remove_stale(parent)
                break
    return found


class Cgroup:
    """A group for one sandbox. It is empty until the sandbox's first process joins by itself."""

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
        """For whoever joins by itself, by writing 0 into `cgroup.procs` of each."""
        return sorted(map(str, set(self._groups.values())))

    @property
    def join_command(self) -> list[str]:
        """A prefix that joins and becomes the rest: nothing is ever forked outside the group."""
        script = "".join(f"echo 0 >'{group}/cgroup.procs' && " for group in self.folders)
        return ["/bin/sh", "-c", script + 'exec "$@"', "sh"] if script else []

    def members(self) -> set[int]:
        """Pids of all processes in it, bubblewrap's own too; none once it is removed.

        Opened anew each time: version 1 reads its list once.
        """
        try:
            text = Path(self.folders[0], "cgroup.procs").read_text()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
            return set()
        return {int(pid) for pid in text.split()} - {0}  # 0: outside our pid namespace

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of this group at its limit."""
        group = self._groups.get("memory")
        if group is None:
            return False
        for name in ("memory.events", "memory.oom_control"):
            with suppress(FileNotFoundError):
                fields = dict(line.split() for line in (group / name).read_text().splitlines())
                return int(fields.get("oom_kill", 0)) > 0
        return False

    def kill(self) -> None:
        """Every member, until none is seen: a fork bomb stays within pids.max, so this ends."""
        for group in set(self._groups.values()):
            with suppress(OSError):
                _kill_members(group)

    def remove(self) -> None:
        """The kernel keeps a group busy for some milliseconds after its last process."""
        for group in set(self._groups.values()):
            deadline = time.monotonic() + 5
            while group.exists():
                try:
                    group.rmdir()
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise SandboxError(f"cgroup {group} cannot be removed: {error}") from error
                    time.sleep(0.002)


def _candidates(controller: str) -> list[Path]:
    """Version 1: below our own group. Version 2: the nearest ancestor that may hand the controller on."""
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
            candidates += [path for path in (nearest, *ancestors) if _hands_on(path, controller)]
    return candidates


def _below(mount: Path, root: str, own: str) -> Path:
    """In a container the mount may show only the part of the hierarchy below `root`."""
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
    """A killed grader leaves its groups, and in them perhaps what no namespace held."""
    for group in parent.glob(f"{_PREFIX}*"):
        if not Path("/proc", group.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            with suppress(OSError):
                _kill_members(group)
                group.rmdir()
