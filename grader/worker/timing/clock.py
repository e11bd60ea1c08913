"""The worker's own clock: one figure a call. A claim, which the referee holds against its own."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from grader.protocol import Done, Flush, Forward, Queue, Time, Timed
from grader.worker import cores
from grader.worker.autograd.engine import vector_jacobian_product
from grader.worker.precision import set_precision

if TYPE_CHECKING:
    from grader.worker.session import Bench

QUEUE_CYCLES = 4_000_000
"""The stream is kept busy this long (about 2 ms) while the host queues the call, so that launch gaps are not timed."""


def measure(bench: Bench, step: Time) -> Timed:
    """Milliseconds that the part takes."""
    with no_collection():
        action = part(bench, step)
        if bench.device.type == "cuda":
            release_persisting_lines()
        flush_caches(bench.device, step.flush_bytes)
        if bench.device.type == "cpu":
            cores.use_all()
        return Timed(ms=milliseconds(bench.device, action))


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """The interpreter's garbage is not collected meanwhile."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def milliseconds(device: torch.device, action: Callable[[], object]) -> float:
    """That one call takes; on a GPU by events around what it queued."""
    return on_device(action) if device.type == "cuda" else _on_host(action)


def flush(bench: Bench, step: Flush) -> Done:
    """Cold caches for the jobs that follow, and other places in memory."""
    bench.synchronize()
    bench.spacers.renew(step.spacers, bench.device)
    if bench.device.type == "cpu":
        if bench.filler is None or bench.filler.numel() < step.nbytes:
            bench.filler = torch.empty(step.nbytes, dtype=torch.uint8)  # kept: new pages take longer
        bench.filler[: step.nbytes].fill_(1)
        bench.heap.own()
        cores.use_first()
    else:
        flush_caches(bench.device, step.nbytes)
    return Done()


def part(bench: Bench, step: Time | Queue) -> Callable[[], object]:
    """What is to be timed, with all that it needs in place."""
    return _backward(bench, step) if step.part == "backward" else _forward(bench, step)


def _forward(bench: Bench, step: Time | Queue) -> Callable[[], object]:
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


def _backward(bench: Bench, step: Time | Queue) -> Callable[[], object]:
    tape = bench.tapes[step.tape]
    pairs = [(tape.outputs[name], bench.cotangent(given)) for name, given in step.cotangents.items()]
    set_precision(step.tf32)

    def backward() -> None:
        bench.grads[step.grads] = vector_jacobian_product(pairs, tape.leaves, step.wrt)

    return backward


def flush_caches(device: torch.device, nbytes: int) -> None:
    """By writing so much twice."""
    if nbytes:
        filler = torch.empty(nbytes, dtype=torch.uint8, device=device)
        filler.fill_(1)
        filler.fill_(2)


def release_persisting_lines() -> None:
    """On a GPU. Lines of L2 under a persisting access window would outlast whatever is written through the cache."""
    with contextlib.suppress(ImportError, AttributeError, RuntimeError):
        from cuda.bindings import driver

        driver.cuCtxResetPersistingL2Cache()


def _on_host(action: Callable[[], object]) -> float:
    started = perf_counter()
    action()
    return (perf_counter() - started) * 1e3


def on_device(action: Callable[[], object], busy_cycles: int = QUEUE_CYCLES) -> float:
    """Milliseconds by a GPU's events; its stream is kept busy so long while the host queues the action."""
    before, after = events()
    torch.cuda.synchronize()
    torch.cuda._sleep(busy_cycles)  # type: ignore[no-untyped-call]
    before.record()
    action()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))


def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    """To go before and after what is timed."""
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
