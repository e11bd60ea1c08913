"""Which kernels ran: one forward, and one backward through it, under PyTorch's profiler. Nobody times this pass."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch

from grader.protocol import MAX_KERNELS, Kernel, Profile, Profiled

if TYPE_CHECKING:
    from grader.worker.session import Bench

TROUBLE_CHARACTERS = 500
GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")


def profile(bench: Bench, step: Profile) -> Profiled:
    """The profiler's own failure, and the submission's under it, is an answer too."""
    try:
        return _seen(bench, step)
    except Exception as error:
        return Profiled(trouble=f"{type(error).__name__}: {error}"[:TROUBLE_CHARACTERS])


def _seen(bench: Bench, step: Profile) -> Profiled:
    on_gpu = bench.device.type == "cuda"
    bench.forward(step.forward)  # once before, for what is made at the first call only
    # torch.profiler.profile would import all of torch.compile first: seconds.
    with torch.autograd.profiler.profile(use_device="cuda" if on_gpu else None) as profiler:
        bench.forward(step.forward)
        if step.backward is not None:
            bench.backward(step.backward)
        bench.synchronize()
    events: list[Any] = list(profiler.function_events or [])
    on_device = [event for event in events if event.device_type.name != "CPU"]
    operators = [event for event in events if "::" in event.name and not event.name.startswith("autograd::")]
    return Profiled(
        kernels=_totals(on_device if on_gpu else operators),
        streams=len({event.device_resource_id for event in on_device}),
        graphs=sum(event.name in GRAPH_LAUNCHES for event in events),
    )


def _totals(events: list[Any]) -> tuple[Kernel, ...]:
    """By name, most of the time first."""
    calls: dict[str, int] = defaultdict(int)
    micros: dict[str, float] = defaultdict(float)
    for event in events:
        calls[event.name] += 1
        on_host = event.device_type.name == "CPU"
        micros[event.name] += event.self_cpu_time_total if on_host else event.time_range.elapsed_us()
    order = sorted(micros, key=lambda name: -micros[name])[:MAX_KERNELS]
    return tuple(Kernel(name=name[:512], calls=calls[name], ms=max(micros[name], 0.0) / 1e3) for name in order)
