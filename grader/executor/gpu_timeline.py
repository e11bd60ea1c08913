"""Times a call on the referee's own GPU timeline.

    referee's stream:  gate | event | copy inputs into the inbox | write `released` | wait for `answered` | event | seal
    worker's stream:   wait for `released` | take the inputs | the call | copy results to the outbox | write `answered`

A submission cannot forge the time: if it writes `answered` early, wrong outputs are sealed; if late, it is slower. Both
hosts queue their part before the gate opens, so that no launch gap is timed. A submission that waits for the device
while it queues, or has more launches than a GPU queues, cannot do that: see `Start`.
"""

from __future__ import annotations

import secrets
import time
from typing import Literal

import torch

from grader import protocol as p
from grader.errors import DeviceError
from grader.executor.client import WorkerClient
from grader.executor.job import JobBuilder
from grader.executor.job_result import JobResult, joined
from grader.verdict.models import Device, Status

Start = Literal["queued", "full queue", "at once"]
"""When the gate opens: when all of a call is queued; when the GPU has had time to fill its queue of about a thousand
launches, behind which a worker's host stays ahead of it; or before the call, so that its launches are timed."""
RELEASE_SECONDS = 0.25
"""Longest wait for the worker to queue a call, whose launches take milliseconds. A choice."""
FILL_SECONDS = 0.05
"""Time in which a worker's host fills the queue: on an H200, a thousand launches of eager PyTorch take 15 ms."""
ANSWER_SECONDS = 5.0
"""Longest wait for the flag after the worker's host has reported that all is done."""
LATE_MS = 5.0
"""Milliseconds in which a worker answers once its call is over on the GPU; what takes longer counts as the call's. A
choice: an answer takes half of one on an H200. A worker that held its answer back could work on the next part."""
POLL_SECONDS = 20e-6
"""Between looks at the flag."""
IDLE_KERNELS = 16
"""A random number of empty kernels, below this one, precedes a call. The cost of a launch depends periodically on the
number of launches before it: on an H200, calls of 16 us differed by up to 1 us by their position, and so did processes
from each other. A number drawn for each call, by the referee, turns that into noise."""
WAIT_UNTIL_EQUAL = 1
"""CU_STREAM_WAIT_VALUE_EQ in cuda.h."""


class TimelineJob(JobBuilder):
    """A job of one `Queue` and its exports, for a worker on the GPU."""

    _queues = True

    def __init__(self, worker: WorkerClient, *, start: Start, drop: p.Drop | None) -> None:
        """Begin the job with its wait for the gate. `drop` comes last, after the time is claimed."""
        super().__init__(worker, Device.CUDA, at_once=True)
        self._start, self._drop = start, drop
        self._released = self._outbox.place(torch.int32, (1,))
        self._answered = self._outbox.place(torch.int32, (1,))
        # Without the flags, the copy has the size of a drawn tensor, and can use the memory that one leaves.
        self._unsealed_bytes = self._outbox.nbytes
        self._token = 1 + secrets.randbits(30)
        idle_kernels = secrets.randbelow(IDLE_KERNELS)
        self.step(p.Await(flag=self._released, token=self._token, idle_kernels=idle_kernels))

    def _run(self, timeout_seconds: float) -> JobResult:
        self._worker.forget_results()
        self.step(p.Signal(flag=self._answered, token=self._token))
        seal, timeline = self._make_seal(), _Timeline(self._token)
        outbox = self._worker.region("outbox", "cuda", self._outbox.nbytes)
        try:
            with timeline:
                self._release(self._segments[0])
                timeline.write(outbox.address(self._released))
                timeline.wait(outbox.address(self._answered))
                timeline.stop()
                seal.queue()
            if self._start == "at once":
                timeline.open()
            first = self._worker.run(
                self._steps,
                timeout_seconds,
                at_answer=None if self._start == "at once" else timeline.open,
                patience_seconds={"queued": RELEASE_SECONDS, "full queue": FILL_SECONDS}.get(self._start),
                bytes_in=self._segments[0].layout.nbytes,
                bytes_out=self._outbox.nbytes,
            )
            evidence = self._with_claim(first, timeout_seconds)
            if evidence.failure is None and not timeline.over_within(ANSWER_SECONDS):
                raise self._worker.lost(Status.INTEGRITY_VIOLATION, "reported a call as done that was not")
        finally:
            timeline.end(outbox.address(self._answered))
        interval_ms = timeline.milliseconds
        if self._drop is None:
            interval_ms += max(0.0, timeline.late_ms(self._worker.answered_at) - LATE_MS)
        return self._result(evidence, seal, interval_ms=interval_ms, queued=timeline.opened_after < RELEASE_SECONDS)

    def _with_claim(self, evidence: p.Evidence, timeout_seconds: float) -> p.Evidence:
        if evidence.failure is not None:
            return evidence
        last: list[p.Step] = [p.Elapsed()]
        if self._drop is not None:
            last.append(self._drop)
        return joined(evidence, self._worker.run(last, timeout_seconds))


class _Timeline:
    """A stream of the referee. Work of the `with` block is queued on it behind a gate and an event."""

    def __init__(self, token: int) -> None:
        self._token = token
        self._gate = torch.zeros(1, dtype=torch.int32, device="cuda")
        self._stream, self._other = torch.cuda.Stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]  # type: ignore[no-untyped-call]
        self._start, self._stop, self._over = events
        self._made = time.perf_counter()
        self._opened_at = self._made
        torch.cuda.synchronize()

    def __enter__(self) -> None:
        self.wait(self._gate.data_ptr())
        self._current = torch.cuda.stream(self._stream)
        self._current.__enter__()  # type: ignore[no-untyped-call]
        self._start.record()

    def __exit__(self, *error: object) -> None:
        self._over.record()
        self._current.__exit__(*error)
        self._made = time.perf_counter()

    def write(self, address: int) -> None:
        """Write the token, in the order of the stream."""
        _write(self._stream, address, self._token)

    def wait(self, address: int) -> None:
        """Wait for the token, in the order of the stream."""
        from cuda.bindings import driver

        _call(driver.cuStreamWaitValue32(self._stream.cuda_stream, address, self._token, WAIT_UNTIL_EQUAL))

    def stop(self) -> None:
        """Record the end of the timed interval."""
        self._stop.record()

    def open(self) -> None:
        """Open the gate."""
        self._opened_at = time.perf_counter()
        _write(self._other, self._gate.data_ptr(), self._token)

    def over_within(self, seconds: float) -> bool:
        """Wait for all queued work; return False if it takes longer."""
        deadline = time.monotonic() + seconds
        while not self._over.query():  # type: ignore[no-untyped-call]
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def end(self, awaited: int) -> None:
        """Release every wait on the GPU, whatever happened in the worker, and synchronize."""
        for address in (self._gate.data_ptr(), awaited):
            _write(self._other, address, self._token)
        torch.cuda.synchronize()

    @property
    def opened_after(self) -> float:
        """Seconds between the end of the block and the opening of the gate."""
        return self._opened_at - self._made

    @property
    def milliseconds(self) -> float:
        """Length of the timed interval."""
        return float(self._start.elapsed_time(self._stop))

    def late_ms(self, at: float) -> float:
        """Milliseconds from the end of all queued work to a time of `time.perf_counter`."""
        return (at - self._opened_at) * 1e3 - float(self._start.elapsed_time(self._over))


def _write(stream: torch.cuda.Stream, address: int, token: int) -> None:
    from cuda.bindings import driver

    _call(driver.cuStreamWriteValue32(stream.cuda_stream, address, token, 0))


def _call(result: tuple[object, ...]) -> None:
    if int(result[0]) != 0:  # type: ignore[call-overload]
        raise DeviceError(f"timing a call on the device: {result[0]!r}")
