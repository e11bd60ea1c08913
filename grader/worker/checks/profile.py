"""Profiles one forward, and one backward through it, with PyTorch's profiler. The pass is not timed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from grader.protocol import MAX_KERNELS, Kernel, Profile, Profiled
from grader.worker.passes import backward, forward
from grader.worker.registry import handles
from grader.worker.session import Session

TROUBLE_CHARACTERS = 500
"""Longest error message in `Profiled.trouble`."""
GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
"""Runtime and driver calls that launch a CUDA graph."""


@handles(Profile)
def profile(session: Session, step: Profile) -> Profiled:
    """Profile the pass; if the profiler fails, or the submission under it, report why."""
    try:
        return _profiled(session, step)
    except Exception as error:
        return Profiled(trouble=f"{type(error).__name__}: {error}"[:TROUBLE_CHARACTERS])


def _profiled(session: Session, step: Profile) -> Profiled:
    on_gpu = session.device.type == "cuda"
    forward(session, step.forward)  # the first call may do work that no later one does
    # torch.profiler.profile imports all of torch.compile first, which takes seconds.
    with torch.autograd.profiler.profile(use_device="cuda" if on_gpu else None) as profiler:
        forward(session, step.forward)
        if step.backward is not None:
            backward(session, step.backward)
        session.synchronize()
    events: list[Any] = list(profiler.function_events or [])
    on_device = [event for event in events if event.device_type.name != "CPU"]
    operators = [event for event in events if "::" in event.name and not event.name.startswith("autograd::")]
    return Profiled(
        kernels=_totals(on_device if on_gpu else operators),
        streams=len({event.device_resource_id for event in on_device}),
        graphs=sum(event.name in GRAPH_LAUNCHES for event in events),
    )


def _totals(events: list[Any]) -> tuple[Kernel, ...]:
    """Sum calls and times by name, longest total time first."""
    calls: dict[str, int] = defaultdict(int)
    micros: dict[str, float] = defaultdict(float)
    for event in events:
        calls[event.name] += 1
        on_host = event.device_type.name == "CPU"
        micros[event.name] += event.self_cpu_time_total if on_host else event.time_range.elapsed_us()
    order = sorted(micros, key=lambda name: -micros[name])[:MAX_KERNELS]
    return tuple(Kernel(name=name[:512], calls=calls[name], ms=max(micros[name], 0.0) / 1e3) for name in order)
