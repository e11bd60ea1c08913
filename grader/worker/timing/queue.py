"""A call that the GPU begins when the referee lets it, and ends by saying so: no clock of this process decides.

The host queues everything behind a flag in shared memory, so that no launch gap is timed either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grader.protocol import Answer, Await, Done, Queue, Timed
from grader.worker.timing.clock import events, flush_caches, no_collection, part, release_persisting_lines

if TYPE_CHECKING:
    from grader.worker.session import Bench

WAIT_UNTIL_EQUAL = 1
"""CU_STREAM_WAIT_VALUE_EQ in cuda.h."""


def hold(bench: Bench, step: Await) -> Done:
    """Nothing that is queued after this runs before the flag is there."""
    from cuda.bindings import driver

    release_persisting_lines()
    for _ in range(step.idle_kernels):
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
    flag = bench.regions["outbox"].address(step.flag)
    _call(driver.cuStreamWaitValue32(_stream(), flag, step.token, WAIT_UNTIL_EQUAL))
    return Done()


def queue(bench: Bench, step: Queue) -> Done:
    """One part of a call, between two events."""
    with no_collection():
        action = part(bench, step)
        flush_caches(bench.device, step.flush_bytes)
        before, after = bench.timed = events()
        if step.alone:
            torch.cuda.synchronize()
        before.record()
        action()
        after.record()
        if step.alone:
            torch.cuda.synchronize()
    return Done()


def answer(bench: Bench, step: Answer) -> Done:
    """The flag comes when all that was queued is done."""
    from cuda.bindings import driver

    flag = bench.regions["outbox"].address(step.flag)
    _call(driver.cuStreamWriteValue32(_stream(), flag, step.token, 0))
    return Done()


def elapsed(bench: Bench) -> Timed:
    """Milliseconds between the two events: a claim."""
    torch.cuda.synchronize()
    assert bench.timed is not None
    before, after = bench.timed
    return Timed(ms=float(before.elapsed_time(after)))


def _stream() -> int:
    return int(torch.cuda.current_stream().cuda_stream)


def _call(result: tuple[Any, ...]) -> None:
    if int(result[0]) != 0:
        raise RuntimeError(f"queueing a timed call: {result[0]!r}")
