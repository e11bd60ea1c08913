"""The worker's own clock: one figure a call. A claim, which the referee holds against its own."""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from grader.protocol import Done, Flush, Forward, Time, Timed
from grader.worker import cores
from grader.worker.engine import vector_jacobian_product
from grader.worker.precision import set_precision

if TYPE_CHECKING:
    from grader.worker.bench import Bench

QUEUE_CYCLES = 4_000_000
"""The stream is kept busy this long (about 2 ms) while the host queues the call, so that launch gaps are not timed."""
SPACER_BYTES = 256 << 10
LINE_BYTES = 64


def measure(bench: Bench, step: Time) -> Timed:
    """Milliseconds that the part takes."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        action = _backward(bench, step) if step.part == "backward" else _forward(bench, step)
        _flush(bench.device, step.flush_bytes)
        if bench.device.type == "cpu":
            cores.use_all()
        return Timed(ms=milliseconds(bench.device, action))
    finally:
        if collecting:
            gc.enable()


def milliseconds(device: torch.device, action: Callable[[], object]) -> float:
    """That one call takes; on a GPU by events around what it queued."""
    return _on_device(action) if device.type == "cuda" else _on_host(action)


def flush(bench: Bench, step: Flush) -> Done:
    """Cold caches for the jobs that follow, and other places in memory."""
    on_cpu = bench.device.type == "cpu"
    if on_cpu:
        # Where tensors lie decides how they share a cache, which is worth some percent: drawn for each sample, that is
        # noise; left as it is, one of two processes would be the slower one throughout.
        bench.spacer = None
        bench.spacer = torch.empty(random.randrange(0, SPACER_BYTES, LINE_BYTES), dtype=torch.uint8)
    _flush(bench.device, step.nbytes)
    if on_cpu:
        cores.use_first()
    return Done()


def _forward(bench: Bench, step: Time) -> Callable[[], object]:
    run = Forward(
        model=step.model,
        inputs=step.inputs,
        tape=step.tape,
        training=step.training,
        grad=step.part == "forward",
        tf32=step.tf32,
        seed=step.seed,
        clone_inputs=step.clone_inputs,
    )
    return lambda: bench.call_forward(run)


def _backward(bench: Bench, step: Time) -> Callable[[], object]:
    tape = bench.tapes[step.tape]
    pairs = [(tape.outputs[name], bench.cotangent(given)) for name, given in step.cotangents.items()]
    set_precision(step.tf32)

    def backward() -> None:
        bench.grads[step.grads] = vector_jacobian_product(pairs, tape.leaves, step.wrt)

    return backward


def _flush(device: torch.device, nbytes: int) -> None:
    if nbytes:
        if device.type == "cuda":
            _release_persisting_lines()
        filler = torch.empty(nbytes, dtype=torch.uint8, device=device)
        filler.fill_(1)
        filler.fill_(2)


def _release_persisting_lines() -> None:
    """Lines of L2 under a persisting access window would outlast whatever is written through the cache."""
    with contextlib.suppress(ImportError, AttributeError, RuntimeError):
        from cuda.bindings import driver

        driver.cuCtxResetPersistingL2Cache()


def _on_host(action: Callable[[], object]) -> float:
    started = perf_counter()
    action()
    return (perf_counter() - started) * 1e3


def _on_device(action: Callable[[], object]) -> float:
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda._sleep(QUEUE_CYCLES)  # type: ignore[no-untyped-call]
    before.record()
    action()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))
