"""The file system inside, as bubblewrap arguments: read-only except for two size-limited places."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from grader.errors import SandboxError
from grader.sandbox._spawn import USER
from grader.sandbox._values import Limits

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders, or links into /usr."""
CONFIGURATION = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
GPU_DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class Mount(NamedTuple):
    """A read-only tree: its path outside, and its path inside."""

    source: Path
    target: Path


class Files:
    """File contents for bubblewrap, each in its own descriptor, which bubblewrap reads to the end."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def add(self, content: bytes) -> str:
        """Return a new descriptor with the content, as an argument."""
        fd = os.memfd_create("sandbox-file")
        self.fds.append(fd)
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return str(fd)

    def close(self) -> None:
        """Close all descriptors."""
        while self.fds:
            os.close(self.fds.pop())


def arguments(
    limits: Limits, user_id: int, readonly: Sequence[Path], hidden: Sequence[Path], gpu: bool, files: Files
) -> list[str]:
    """Return the arguments in bubblewrap's order.

    Later arguments cover earlier ones, and the root becomes read-only last.
    """
    trees = interpreter() + list(readonly) + (library_path() if gpu else [])
    mounts = _mounts(trees)
    return [
        *_system(),
        *_configuration(user_id, files),
        *("--proc", "/proc", "--dev", "/dev"),
        # No pseudo-terminals: the kernel's own threads process what is written to one, when its writer is stopped too.
        *("--perms", "0755", "--tmpfs", "/dev/pts", "--remount-ro", "/dev/pts"),
        *(word for device in gpu_devices() if gpu for word in ("--dev-bind", device, device)),
        *("--perms", "1777", "--size", str(limits.scratch_bytes), "--tmpfs", "/tmp"),
        *("--perms", "1777", "--size", str(limits.shared_memory_bytes), "--tmpfs", "/dev/shm"),
        *_parents(mount.target for mount in mounts),
        *(word for mount in mounts for word in ("--ro-bind", str(mount.source), str(mount.target))),
        *_masks(mounts, hidden, files),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", "/tmp"),
    ]


def interpreter() -> list[Path]:
    """Return the folders of the grader's Python: its virtual environment and the installation behind it."""
    return [Path(prefix) for prefix in dict.fromkeys((sys.prefix, sys.base_prefix, sys.base_exec_prefix))]


def library_path() -> list[Path]:
    """Return the folders of LD_LIBRARY_PATH, the only way to the GPU driver's libraries on some hosts."""
    entries = [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    return [entry for entry in entries if entry.is_absolute() and entry.is_dir()]


def gpu_devices() -> list[str]:
    """Return the device files of NVIDIA's driver; none if there is no GPU."""
    return sorted(str(path) for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern) if path.is_char_device())


def _system() -> list[str]:
    words: list[str] = []
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    return words


def _configuration(user_id: int, files: Files) -> list[str]:
    contents = {
        "/etc/passwd": f"root:x:0:0::/:/bin/false\n{USER}:x:{user_id}:{user_id}::/tmp:/bin/sh\n",
        "/etc/group": f"root:x:0:\n{USER}:x:{user_id}:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "/etc/hosts": "127.0.0.1 localhost\n",
    }
    words = ["--perms", "0755", "--dir", "/etc"]
    for name in CONFIGURATION:
        words += ["--ro-bind-try", name, name]
    for name, content in contents.items():
        words += ["--perms", "0644", "--ro-bind-data", files.add(content.encode()), name]
    return words


def _mounts(trees: Iterable[Path]) -> list[Mount]:
    """Return each tree at its given and its resolved path, shallow ones first, without repeats."""
    wanted: set[Mount] = set()
    for tree in trees:
        name, real = Path(os.path.normpath(tree.absolute())), tree.resolve()
        if not real.exists():
            raise SandboxError(f"cannot be shown in a sandbox: {tree} does not exist")
        wanted |= {Mount(real, name), Mount(real, real)}
    chosen: list[Mount] = []
    for mount in sorted(wanted, key=lambda mount: len(mount.target.parts)):
        if len(mount.target.parts) == 1:
            raise SandboxError(f"cannot be shown in a sandbox: {mount.target} is the whole file system")
        # Also correct for a path in a mounted tree that is a link there: it leads to the resolved path, mounted too.
        seen = [*map(Path, SYSTEM), *(other.target for other in chosen)]
        if not any(mount.target.is_relative_to(target) for target in seen):
            chosen.append(mount)
    return chosen


def _parents(targets: Iterable[Path]) -> list[str]:
    """Create the parent folders, accessible to all, whatever their mode outside (/root is 0700)."""
    parents = {parent for target in targets for parent in target.parents if len(parent.parts) > 1}
    made = {Path("/tmp"), Path("/dev"), Path("/dev/shm"), Path("/etc")}
    ordered = sorted(parents - made, key=lambda parent: len(parent.parts))
    return [word for parent in ordered for word in ("--perms", "0755", "--dir", str(parent))]


def _masks(mounts: Sequence[Mount], hidden: Sequence[Path], files: Files) -> list[str]:
    """Cover hidden paths by empty ones. A hidden path outside of every tree does not exist inside anyway."""
    words: list[str] = []
    system = [Mount(Path(name), Path(name)) for name in SYSTEM if not Path(name).is_symlink()]
    reals = {path.resolve() for path in hidden}
    for real in sorted(real for real in reals if reals.isdisjoint(real.parents)):
        for mount in (*system, *mounts):
            if not real.is_relative_to(mount.source) or not real.exists():
                continue
            target = str(mount.target / real.relative_to(mount.source))
            if real.is_dir():
                words += ["--perms", "0755", "--tmpfs", target, "--remount-ro", target]
            else:
                words += ["--perms", "0444", "--ro-bind-data", files.add(b""), target]
    return words
