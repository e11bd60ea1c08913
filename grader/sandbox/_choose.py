"""Finds a sandbox that works here, by running it. Nothing falls back to weaker isolation by itself."""

import json
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from grader.errors import SandboxError, SandboxUnavailable
from grader.sandbox import _cgroup
from grader.sandbox._base import Sandbox
from grader.sandbox._bubblewrap import Bubblewrap
from grader.sandbox._user_id import is_root
from grader.sandbox._values import Layer, Limits
from grader.sandbox._weak import Weak
from grader.sandbox._zygote import Zygote

_TRIAL_LIMITS = Limits(
    wall_seconds=60,
    memory_bytes=1 << 30,
    scratch_bytes=1 << 24,
    shared_memory_bytes=1 << 24,
    process_count=64,
    file_bytes=1 << 24,
    output_bytes=1 << 16,
)

_NAMESPACES = {
    "pid": "pid-namespace",
    "net": "network-namespace",
    "ipc": "ipc-namespace",
    "uts": "uts-namespace",
    "mnt": "mount-namespace",
    "cgroup": "cgroup-namespace",
    "user": "user-namespace",
}

_HERE = Path(__file__).parent


def choose(name: Literal["auto", "bubblewrap", "weak"]) -> Sandbox:
    """Raises SandboxUnavailable where it does not work. "auto" never means "weak"."""
    return _tried("weak" if name == "weak" else "bubblewrap")[0]


def probe() -> list[Layer]:
    """Each layer of the default sandbox, seen in a trial run or not."""
    try:
        sandbox, layers = _tried("bubblewrap")
    except SandboxError as error:
        return [Layer("bubblewrap", active=False, detail=str(error))]
    return [Layer(sandbox.name, active=True, detail="ran a trial command"), *layers]


@cache
def _tried(name: str) -> tuple[Sandbox, tuple[Layer, ...]]:
    hierarchies = _cgroup.find()
    sandbox = Weak(hierarchies) if name == "weak" else Bubblewrap(hierarchies)
    argv = [sys.executable, "-I", "-S", "-c", (_HERE / "_look.py").read_text()]
    try:
        with sandbox.spawn(argv, limits=_TRIAL_LIMITS, gpu=False) as process:
            ending = process.wait()
            seen = json.loads(process.output().text)
    except SandboxUnavailable:
        raise
    except SandboxError as error:
        raise SandboxUnavailable(f"{name} does not work here: {error}; {_remedy(str(error))}") from error
    except ValueError as error:
        said = process.output().text.strip().splitlines()[-1:]
        raise SandboxUnavailable(f"{name} does not work here: the trial ended with {ending}, {said}") from error
    layers = tuple(_layers(seen, process.applied, hierarchies))
    sandbox.layers = _active(layers)
    if isinstance(sandbox, Bubblewrap):
        sandbox.copies = _active(_around_a_copy(sandbox, hierarchies)) == sandbox.layers
    return sandbox, layers


def _active(layers: Iterable[Layer]) -> tuple[str, ...]:
    return tuple(layer.name for layer in layers if layer.active)


def _around_a_copy(sandbox: Sandbox, hierarchies: _cgroup.Hierarchies) -> list[Layer]:
    """The layers around a process that came into the sandbox from outside; none where that does not work."""
    try:
        with (
            Zygote("_look", {"PYTHONPATH": str(_HERE)}, gpu=False) as zygote,
            sandbox.spawn_copy(zygote, limits=_TRIAL_LIMITS, gpu=False) as process,
        ):
            process.wait()
            return _layers(json.loads(process.output().text), process.applied, hierarchies)
    except (SandboxError, ValueError):
        return []


def _layers(seen: dict[str, Any], applied: tuple[str, ...], hierarchies: _cgroup.Hierarchies) -> list[Layer]:
    layers = [Layer("user-id", seen["user_id"] != os.getuid(), f"uid {seen['user_id']} inside, {os.getuid()} outside")]
    for kind, name in _NAMESPACES.items():
        # Root drops to another real uid instead: behind a user namespace the kernel's uid would still be 0.
        if kind == "user" and is_root():
            continue
        own = seen["namespaces"].get(kind) not in (None, str(Path(f"/proc/self/ns/{kind}").readlink()))
        layers.append(Layer(name, own, "its own" if own else "shared with the grader"))
    bits = seen["capabilities"]
    layers += [
        Layer("no-capabilities", bits == 0, f"capabilities {bits:#x}"),
        Layer("no-new-privileges", seen["no_new_privileges"] == 1, f"NoNewPrivs {seen['no_new_privileges']}"),
        Layer("seccomp", seen["seccomp"] == 2, f"mode {seen['seccomp']}"),
        Layer("landlock", "landlock" in applied, "applied" if "landlock" in applied else "not in this kernel"),
    ]
    for controller in ("memory", "pids"):
        where = hierarchies.get(controller)
        detail = str(where) if where else "no writable hierarchy: run as root, or delegate a cgroup to this user"
        layers.append(Layer(f"cgroup-{controller}", where is not None, detail))
    for name, key, wanted in (
        ("rlimit-file-size", "file_bytes", _TRIAL_LIMITS.file_bytes),
        ("rlimit-processes", "process_count", _TRIAL_LIMITS.process_count),
        ("rlimit-data", "data_bytes", _TRIAL_LIMITS.memory_bytes),
        ("scratch-size", "scratch_bytes", _TRIAL_LIMITS.scratch_bytes),
    ):
        layers.append(Layer(name, seen[key] == wanted, f"{seen[key]} where {wanted} was asked for"))
    return layers


def _remedy(message: str) -> str:
    if "amespace" in message or "uid map" in message:
        return "run as root, or allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    return "`grader doctor` shows the layers"
