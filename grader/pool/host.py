"""Which places a host has: its GPUs or its CPU, and how they share its cores."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from grader.errors import UserError
from grader.machine.backends import accelerators, backend
from grader.machine.host import CoreShare, thread_count
from grader.options import AUTO, GraderOptions
from grader.pool.local import ProcessPlace
from grader.pool.messages import Setup
from grader.verdict.models import Device

ALL = "all"
CORES_A_WORKER = 2
"""Cores for each process that grades on the CPU, by default: its workers compile and compute."""

GpuChoice = str | Sequence[int | str] | None


def host_places(options: GraderOptions, gpus: GpuChoice, workers: int | None, engine: str) -> list[ProcessPlace]:
    """The places for a choice; by default all GPUs, or the CPU without one. Raises UserError."""
    if gpus is not None and workers is not None:
        raise UserError("GPUs and CPU workers together are not supported; name one of them")
    if options.device_index:
        raise UserError("--device-index names one GPU for a single grader; name GPUs with --gpus instead")
    accelerator = _accelerator(options)
    names = () if workers is not None or accelerator is None else chosen(gpus, backend(accelerator).names())
    if accelerator is not None and names:
        return _on_gpus(options, accelerator, names, engine)
    if gpus is not None:
        raise UserError(f"--gpus {_text(gpus)}: there is no GPU to grade on; use --workers N for the CPU")
    return _on_cpu(options, workers, engine)


def chosen(gpus: GpuChoice, names: Sequence[str]) -> tuple[str, ...]:
    """The names of chosen GPUs, by index among those visible or by UUID. Raises UserError."""
    if gpus is None or gpus == ALL:
        return tuple(names)
    found = []
    for one in [part.strip() for part in gpus.split(",")] if isinstance(gpus, str) else map(str, gpus):
        if one.isdigit() and int(one) < len(names):
            found.append(names[int(one)])
        elif one.startswith(("GPU-", "MIG-")):
            found.append(one)
        else:
            raise UserError(f"--gpus {_text(gpus)}: no GPU {one!r}; {len(names)} are visible, counted from 0")
    if len(set(found)) < len(found):
        raise UserError(f"--gpus {_text(gpus)}: one GPU is named twice; name each once")
    return tuple(found)


def shared_cores(cores: Collection[int], places: int, threads: int) -> list[CoreShare]:
    """The cores of each place: builds have their own, and so have timed processes if there are enough.

    Enough are `threads` for each place, and two more for its builds, which get a quarter of all. With fewer, builds
    keep to half of the cores.
    """
    ordered = sorted(cores)
    if len(ordered) >= places * (threads + 2):
        each = max(threads, len(ordered) * 3 // 4 // places)
        own = [tuple(ordered[place * each : (place + 1) * each]) for place in range(places)]
        builds = tuple(ordered[places * each :])
        return [CoreShare(own=mine, builds=builds, sharers=places, threads=threads) for mine in own]
    builds = tuple(ordered[len(ordered) // 2 :])
    return [CoreShare(builds=builds, sharers=places, threads=threads) for _ in range(places)]


def hidden_accelerators() -> dict[str, str]:
    """Environment variables of a process that sees the CPU alone."""
    return {name: value for device in accelerators() for name, value in backend(device).visibility(None).items()}


def turns_file() -> Path:
    """The file by which a user's grading processes take turns, whichever pool they belong to."""
    return Path(tempfile.gettempdir()) / f"grader-turns-{os.getuid()}"


def _accelerator(options: GraderOptions) -> Device | None:
    if options.device == AUTO:
        return next((device for device in accelerators() if backend(device).names()), None)
    device = Device(options.device)
    return None if backend(device).on_host else device


def _on_gpus(options: GraderOptions, device: Device, names: Sequence[str], engine: str) -> list[ProcessPlace]:
    shares = shared_cores(os.sched_getaffinity(0), len(names), thread_count())
    return [
        ProcessPlace(
            name if name.startswith("GPU-") else f"GPU {name}",
            Setup(engine=engine, options=options, device=device, turns=str(turns_file()), cores=cores),
            backend(device).visibility(name),
            depth=max(1, len(cores.builds) // 2 // cores.sharers) + 1,
        )
        for name, cores in zip(names, shares, strict=True)
    ]


def _on_cpu(options: GraderOptions, workers: int | None, engine: str) -> list[ProcessPlace]:
    count = max(1, len(os.sched_getaffinity(0)) // CORES_A_WORKER) if workers is None else workers
    if count < 1:
        raise UserError(f"--workers {count}: use at least 1")
    setup = Setup(engine=engine, options=options, device=Device.CPU, turns=str(turns_file()))
    return [ProcessPlace(f"CPU worker {number + 1}", setup, hidden_accelerators(), depth=2) for number in range(count)]


def _text(gpus: GpuChoice) -> str:
    return gpus if isinstance(gpus, str) else ",".join(map(str, gpus or ()))
