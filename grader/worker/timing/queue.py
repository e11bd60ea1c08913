"""Queues a call that the GPU starts when the referee releases it, and ends by writing a flag.

No clock in this process counts. The host queues everything behind a flag in shared memory, so that no launch gap is
timed either.
"""

from __future__ import annotations

import torch

from grader.protocol import Await, Done, Elapsed, Queue, Signal, Timed
from grader.worker.conditions import no_collection
from grader.worker.memory import driver_call
from grader.worker.registry import handles
from grader.worker.session import Session
from grader.worker.timing.clock import events, flush_caches, part, release_persisting_lines

WAIT_UNTIL_EQUAL = 1
"""CU_STREAM_WAIT_VALUE_EQ in cuda.h."""
QUEUEING = "queueing a timed call"


@handles(Await)
def hold(session: Session, step: Await) -> Done:
    """Make the stream wait for the flag."""
    from cuda.bindings import driver

    release_persisting_lines()
    for _ in range(step.idle_kernels):
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
    flag = session.regions["outbox"].address(step.flag)
    driver_call(QUEUEING, driver.cuStreamWaitValue32(_stream(), flag, step.token, WAIT_UNTIL_EQUAL))
    return Done()


@handles(Queue)
def queue(session: Session, step: Queue) -> Done:
    """Queue one part of a call between two events."""
    with no_collection():
        action = part(session, step)
        flush_caches(session.device, step.flush_bytes)
        before, after = session.timed = events()
        if step.alone:
            torch.cuda.synchronize()
        before.record()
        action()
        after.record()
        if step.alone:
            torch.cuda.synchronize()
    return Done()


@handles(Signal)
def signal(session: Session, step: Signal) -> Done:
    """Queue the write of the flag behind all other work."""
    from cuda.bindings import driver

    flag = session.regions["outbox"].address(step.flag)
    driver_call(QUEUEING, driver.cuStreamWriteValue32(_stream(), flag, step.token, 0))
    return Done()


@handles(Elapsed)
def elapsed(session: Session, step: Elapsed) -> Timed:
    """Return the milliseconds between the two events: a claim."""
    torch.cuda.synchronize()
    assert session.timed is not None
    before, after = session.timed
    return Timed(ms=float(before.elapsed_time(after)))


def _stream() -> int:
    return int(torch.cuda.current_stream().cuda_stream)
