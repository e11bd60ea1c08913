"""Finds a sandbox that works on this machine, by running it; never falls back to weaker isolation."""

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from grader.errors import SandboxError, SandboxUnavailable
from grader.sandbox import _cgroup
from grader.sandbox._base import Sandbox
from grader.sandbox._bubblewrap import Bubblewrap
from grader.sandbox._user_id import is_root
from grader.sandbox._values import PYTHON, Layer, Limits
from grader.sandbox._weak import Weak
from grader.sandbox._zygote import CopyOf, Zygote

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

_trying = Lock()
_HERE = Path(__file__).parent


def choose(name: Literal["auto", "bubblewrap", "weak"]) -> Sandbox:
    """Return the sandbox; "auto" never means "weak". Raises SandboxUnavailable if it does not work here.

    Safe in any thread: a second one waits for the trial of the first.
    """
    with _trying:
        return _tried("weak" if name == "weak" else "bubblewrap")[0]


def probe() -> list[Layer]:
    """Return each layer of the default sandbox, as a trial run finds it."""
    try:
        sandbox, layers = _tried("bubblewrap")
    except SandboxError as error:
        return [Layer("bubblewrap", active=False, detail=str(error))]
    return [Layer(sandbox.name, active=True, detail="ran a trial command"), *layers]


@cache
def _tried(name: str) -> tuple[Sandbox, tuple[Layer, ...]]:
    hierarchies = _cgroup.find()
    sandbox = Weak(hierarchies) if name == "weak" else Bubblewrap(hierarchies)
    argv = [PYTHON, "-I", "-S", "-c", (_HERE / "_self_report.py").read_text()]
    try:
        with sandbox.spawn(argv, limits=_TRIAL_LIMITS, gpu=False) as process:
            ending = process.wait()
            report = json.loads(process.output().text)
    except SandboxUnavailable:
        raise
    except SandboxError as error:
        raise SandboxUnavailable(f"{name} does not work here: {error}; {_remedy(str(error))}") from error
    except ValueError as error:
        last = process.output().text.strip().splitlines()[-1:]
        raise SandboxUnavailable(f"{name} does not work here: the trial ended with {ending}, {last}") from error
    layers = tuple(_layers(report, process.applied, hierarchies))
    sandbox.layers = _active(layers)
    if isinstance(sandbox, Bubblewrap):
        sandbox.copies = _active(_around_a_copy(sandbox, hierarchies)) == sandbox.layers
    return sandbox, layers


def _active(layers: Iterable[Layer]) -> tuple[str, ...]:
    return tuple(layer.name for layer in layers if layer.active)


def _around_a_copy(sandbox: Sandbox, hierarchies: _cgroup.Hierarchies) -> list[Layer]:
    """Return the layers around a zygote's copy; none if copies do not work."""
    try:
        with (
            Zygote("_self_report", {"PYTHONPATH": str(_HERE)}, gpu=False) as zygote,
            sandbox.spawn(CopyOf(zygote), limits=_TRIAL_LIMITS, gpu=False) as process,
        ):
            process.wait()
            return _layers(json.loads(process.output().text), process.applied, hierarchies)
    except (SandboxError, ValueError):
        return []


def _layers(report: dict[str, Any], applied: tuple[str, ...], hierarchies: _cgroup.Hierarchies) -> list[Layer]:
    layers = [
        Layer("user-id", report["user_id"] != os.getuid(), f"uid {report['user_id']} inside, {os.getuid()} outside")
    ]
    for kind, name in _NAMESPACES.items():
        # Root changes to another real uid instead: in a user namespace the kernel's uid would still be 0.
        if kind == "user" and is_root():
            continue
        own = report["namespaces"].get(kind) not in (None, str(Path(f"/proc/self/ns/{kind}").readlink()))
        layers.append(Layer(name, own, "its own" if own else "shared with the grader"))
    bits = report["capabilities"]
    layers += [
        Layer("no-capabilities", bits == 0, f"capabilities {bits:#x}"),
        Layer("no-new-privileges", report["no_new_privileges"] == 1, f"NoNewPrivs {report['no_new_privileges']}"),
        Layer("seccomp", report["seccomp"] == 2, f"mode {report['seccomp']}"),
        Layer("landlock", "landlock" in applied, "applied" if "landlock" in applied else "not in this kernel"),
    ]
    for controller in ("memory", "pids"):
        where = hierarchies.get(controller)
        detail = str(where) if where else "no writable hierarchy: run as root, or delegate a cgroup to this user"
        layers.append(Layer(f"cgroup-{controller}", where is not None, detail))
    where = hierarchies.get(_cgroup.FREEZER)
    detail = str(where) if where else "no writable cgroup of version 2: processes are stopped by signals"
    layers.append(Layer("cgroup-freezer", where is not None, detail))
    for name, key, wanted in (
        ("rlimit-file-size", "file_bytes", _TRIAL_LIMITS.file_bytes),
        ("rlimit-processes", "process_count", _TRIAL_LIMITS.process_count),
        ("rlimit-data", "data_bytes", _TRIAL_LIMITS.memory_bytes),
        ("scratch-size", "scratch_bytes", _TRIAL_LIMITS.scratch_bytes),
    ):
        layers.append(Layer(name, report[key] == wanted, f"{report[key]} for a limit of {wanted}"))
    return layers


def _remedy(message: str) -> str:
    if "amespace" in message or "uid map" in message:
        return "run as root, or allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    return "`grader doctor` shows the layers"
