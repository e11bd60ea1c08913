"""Times a call by the worker's own clock: a claim, which the referee compares with its own time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from time import perf_counter

import torch

from grader.protocol import Done, Flush, Forward, Time, Timed
from grader.protocol.timing import TimedPart
from grader.worker.autograd.engine import vector_jacobian_product
from grader.worker.conditions import no_collection, set_precision
from grader.worker.passes import call_forward, take_grad_outputs
from grader.worker.registry import handles
from grader.worker.session import Session
from grader.worker.timing.host import use_all_cores, use_first_core
from grader.worker.timing.time_limit import at_most

QUEUE_CYCLES = 4_000_000
"""GPU clock cycles (about 2 ms) that the stream is kept busy while the host queues the call, so that launch gaps are
not timed."""


@handles(Time)
def measure(session: Session, step: Time) -> Timed:
    """Time one part of a call."""
    with no_collection(), at_most(step.limit_seconds):
        action = part(session, step)
        if session.device.type == "cuda":
            release_persisting_lines()
        flush_caches(session.device, step.flush_bytes)
        if session.device.type == "cpu":
            use_all_cores()
        return Timed(ms=milliseconds(session.device, action))


@handles(Flush)
def flush(session: Session, step: Flush) -> Done:
    """Give the steps that follow cold caches and other addresses."""
    session.synchronize()
    session.spacers.renew(step.spacers, session.device)
    if session.device.type == "cpu":
        session.host_memory.flush(step.nbytes)
        use_first_core()
    else:
        flush_caches(session.device, step.nbytes)
    return Done()


def milliseconds(device: torch.device, action: Callable[[], object]) -> float:
    """Time one call in milliseconds; on a GPU by events around what it queues."""
    return on_device(action) if device.type == "cuda" else _on_host(action)


def part(session: Session, step: TimedPart) -> Callable[[], object]:
    """Return the part as a function, with everything that it needs in place."""
    return _backward(session, step) if step.part == "backward" else _forward(session, step)


def _forward(session: Session, step: TimedPart) -> Callable[[], object]:
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
    return lambda: call_forward(session, run)


def _backward(session: Session, step: TimedPart) -> Callable[[], object]:
    tape = session.tapes[step.tape]
    pairs = [(tape.outputs[name], g) for name, g in take_grad_outputs(session, step).items()]
    set_precision(session.device, tf32=step.tf32, always=session.tf32)

    def backward() -> None:
        session.grads[step.grads] = vector_jacobian_product(pairs, tape.leaves, step.wrt)

    return backward


def flush_caches(device: torch.device, nbytes: int) -> None:
    """Write a block of `nbytes` twice."""
    if nbytes:
        filler = torch.empty(nbytes, dtype=torch.uint8, device=device)
        filler.fill_(1)
        filler.fill_(2)


def release_persisting_lines() -> None:
    """Reset the GPU's persisting L2 lines, which would survive whatever is written through the cache."""
    with contextlib.suppress(ImportError, AttributeError, RuntimeError):
        from cuda.bindings import driver

        driver.cuCtxResetPersistingL2Cache()


def _on_host(action: Callable[[], object]) -> float:
    started = perf_counter()
    action()
    return (perf_counter() - started) * 1e3


def on_device(action: Callable[[], object], busy_cycles: int = QUEUE_CYCLES) -> float:
    """Time an action in milliseconds by GPU events, queued while the stream is busy for `busy_cycles`."""
    before, after = events()
    torch.cuda.synchronize()
    torch.cuda._sleep(busy_cycles)  # type: ignore[no-untyped-call]
    before.record()
    action()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))


def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    """Return two events, to record before and after what is timed."""
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
