"""The worker's own clock: one figure a call. A claim, which the referee holds against its own."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from grader.protocol import Forward, Time, Timed, TimedCall

if TYPE_CHECKING:
    from grader.worker.bench import Bench

QUEUE_CYCLES = 4_000_000
"""The stream is kept busy this long (about 2 ms) while the host queues the call, so that launch gaps are not timed."""


def measure(bench: Bench, step: Time) -> Timed:
    """Milliseconds of each call's parts, in order."""
    timer = _on_device if bench.device.type == "cuda" else _on_host
    collecting = gc.isenabled()
    gc.disable()
    try:
        parts = []
        for call in step.calls:
            actions = _actions(bench, step, call)
            _flush(bench.device, step.flush_bytes)
            parts.append(timer(actions))
    finally:
        if collecting:
            gc.enable()
    return Timed(
        forward_ms=tuple(part[0] for part in parts), backward_ms=tuple(part[1] for part in parts if len(part) > 1)
    )


def _actions(bench: Bench, step: Time, call: TimedCall) -> list[Callable[[], None]]:
    from grader.worker.bench import vector_jacobian_product

    training = step.phase == "training"
    cotangents = {name: bench.cotangent(given) for name, given in call.cotangents.items()}
    run = Forward(
        model=step.model,
        inputs=call.inputs,
        tape=call.tape,
        training=step.training,
        grad=training,
        tf32=step.tf32,
        seed=step.seed,
        clone_inputs=step.clone_inputs,
    )

    def forward() -> None:
        bench.call_forward(run)

    def backward() -> None:
        tape = bench.tapes[call.tape]
        pairs = [(tape.outputs[name], g) for name, g in cotangents.items()]
        bench.grads[call.grads] = vector_jacobian_product(pairs, tape.leaves, step.wrt)

    return [forward, backward] if training else [forward]


def _flush(device: torch.device, nbytes: int) -> None:
    if nbytes:
        filler = torch.empty(nbytes, dtype=torch.uint8, device=device)
        filler.fill_(1)
        filler.fill_(2)


def _on_host(actions: list[Callable[[], None]]) -> list[float]:
    stamps = [perf_counter()]
    for action in actions:
        action()
        stamps.append(perf_counter())
    return [(after - before) * 1e3 for before, after in pairwise(stamps)]


def _on_device(actions: list[Callable[[], None]]) -> list[float]:
    stamps = [torch.cuda.Event(enable_timing=True) for _ in range(len(actions) + 1)]  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda._sleep(QUEUE_CYCLES)  # type: ignore[no-untyped-call]
    stamps[0].record()
    for action, stamp in zip(actions, stamps[1:], strict=True):
        action()
        stamp.record()
    stamps[-1].synchronize()
    return [before.elapsed_time(after) for before, after in pairwise(stamps)]
