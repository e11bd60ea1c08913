"""One worker process in its sandbox: jobs out, checked evidence in, or `WorkerLost`."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from grader import protocol
from grader.errors import SandboxError
from grader.executor import interrupt, worker_process
from grader.executor.job_log import compressed_kinds, log_job
from grader.executor.pause import Idleness, NeverStill, stopped
from grader.executor.worker_process import ControlSocket, Killer, SocketClosed, SocketTimeout, WorkerLost, WorkerOptions
from grader.protocol import HEADER, MAX_EVIDENCE_BYTES, Attach, Drop, Evidence, Job, Step, Warm, Warmed
from grader.sandbox import Sandbox, Zygote
from grader.verdict.models import Status

if TYPE_CHECKING:
    from grader.executor.shared_memory import Region, RegionKind, RegionName

START_SECONDS = 120.0
"""A worker that has not imported torch by then is the grader's failure, not the submission's."""


class WorkerClient:
    """Starts a worker at once; `wait_ready` or the first `run` waits until it listens."""

    def __init__(self, sandbox: Sandbox, options: WorkerOptions, zygote: Zygote | None = None) -> None:
        """Copy the zygote, which runs `MODULE` in the options' environment; without one, start a new process."""
        self.options, self._zygote = options, zygote
        self.peak_device_bytes = 0
        self.answered_at = 0.0
        """When the last byte of its last answer had come, by `time.perf_counter`."""
        self.pace: Warmed | None = None
        """How quickly the GPU takes up work, measured before any submission runs; None until the worker is warm."""
        self.read_results: Callable[[], None] | None = None
        """Reads the results of the last job that still wait in the worker (`Deferred`); None if there are none."""
        self._ready, self._jobs, self._last_steps = False, 0, tuple[Step, ...]()
        self._limit: tuple[float, float] | None = None  # deadline and seconds of `within`
        self._turn = threading.RLock()
        self._warming: Job | None = None
        self._warming_since = 0.0
        self._regions: dict[RegionName, Region] = {}
        self._seen: set[int] = set()  # pids at the last pause, in a sandbox without a cgroup
        self._idleness = Idleness()
        self._socket = ControlSocket()
        with self._socket.theirs as theirs, contextlib.ExitStack() as unless_started:
            unless_started.callback(self._socket.close)
            self._process = worker_process.start_process(sandbox, options, theirs.fileno(), zygote)
            unless_started.pop_all()

    def warm_up(self, *, libraries: bool, counts: bool) -> None:
        """Have the GPU context created, without waiting for it; `wait_ready` reports a failure.

        With `libraries` the worker loads cuDNN and cuBLAS too, with `counts` what `Count` steps need.
        """
        if self.options.gpu and not self._ready and self._warming is None:
            self._warming = self._new_job([Warm(libraries=libraries, counts=counts)])
            self._warming_since = time.perf_counter()
            with contextlib.suppress(WorkerLost):
                self._send(self._warming, (), time.monotonic() + START_SECONDS)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Count the block's jobs against one limit of time, or an outer block's. Other threads' blocks wait."""
        with self._turn:
            outer = self._limit
            self._limit = outer or (time.monotonic() + seconds, seconds)
            try:
                yield
            finally:
                self._limit = outer

    def wait_ready(self) -> None:
        """Wait until the worker listens. Raises SandboxError if it ends before any submission ran."""
        if self._ready:
            return
        deadline = time.monotonic() + START_SECONDS
        try:
            self._receive(deadline)
            if self._warming is not None:
                evidence = self._checked(self._warming, self._receive(deadline))
                self.pace = next((result for result in evidence.results if isinstance(result, Warmed)), None)
                log_job(self.options.role, self._warming.steps, self._warming_since, 0, 0)
        except WorkerLost as lost:
            lines = lost.output.strip().splitlines() or [self._zygote.last_words() if self._zygote else ""]
            raise SandboxError(f"a worker did not start: {lost}; {lines[-1]}") from lost
        self._ready = True

    def run(
        self,
        steps: Sequence[Step],
        timeout_seconds: float,
        descriptors: Sequence[int] = (),
        at_answer: Callable[[], None] | None = None,
        patience_seconds: float | None = None,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> Evidence:
        """Run one job and return its evidence, which fits the job (`protocol.check_answer`).

        A step that raised is in the evidence. `at_answer` is called when its first byte is there, before
        anything is read, and no later than `patience_seconds` after the job was sent. The tensors' `bytes_in` and
        `bytes_out` are only logged. Raises WorkerLost, SandboxError for a worker that never listened, and Interrupted.
        """
        interrupt.check()
        self.wait_ready()
        if self._socket.readable():
            raise self._lost_before_job()
        job, started = self._new_job(steps), time.perf_counter()
        self._jobs, self._last_steps = self._jobs + 1, tuple(steps)
        try:
            deadline = time.monotonic() + timeout_seconds
            if self._limit is not None and self._limit[0] < deadline:
                deadline, timeout_seconds = self._limit
            self._send(job, descriptors, deadline)
            evidence = self._checked(job, self._receive(deadline, timeout_seconds, at_answer, patience_seconds))
        finally:
            log_job(self.options.role, steps, started, bytes_in, bytes_out)
        self.peak_device_bytes = max(self.peak_device_bytes, evidence.peak_device_bytes)
        return evidence

    @contextlib.contextmanager
    def paused(self, *, untrusted: bool = False) -> Iterator[None]:
        """Stop all processes of the worker meanwhile. Raises WorkerLost if they cannot be stopped.

        If they are `untrusted`, raises WorkerLost after the block too, if they used the CPU all the same.
        """
        try:
            with stopped(self._process, self._seen, self._idleness, untrusted=untrusted):
                yield
        except NeverStill as error:
            raise self.lost(Status.INTEGRITY_VIOLATION, str(error)) from None

    def waited_ms(self) -> float:
        """Milliseconds that its threads have waited for a core."""
        return worker_process.waited_ms(self._process.roots)

    def busy_seconds(self) -> float:
        """The host's clock, without what the worker and this process waited for a core."""
        return worker_process.busy_seconds(self._process.roots)

    def regions(self, kind: RegionKind, inbox: int, outbox: int) -> tuple[Region, Region]:
        """Return inbox and outbox of at least these bytes, made in one job if there are none yet."""
        if not self._regions:
            self._make({"inbox": inbox, "outbox": outbox}, kind)
        return self.region("inbox", kind, inbox), self.region("outbox", kind, outbox)

    def region(self, name: RegionName, kind: RegionKind, nbytes: int) -> Region:
        """Return the region, replaced by a new one if it is too small or of the other kind."""
        present = self._regions.get(name)
        if present is None or present.kind != kind or present.nbytes < nbytes:
            self._make({name: nbytes}, kind)
        return self._regions[name]

    def _make(self, sizes: Mapping[RegionName, int], kind: RegionKind) -> None:
        """Make regions of at least these bytes, and have the worker map them in one job, in place of others."""
        from grader.executor.shared_memory import Region, roomy  # imports torch, before which workers start

        made: dict[RegionName, Region] = {}
        with contextlib.ExitStack() as unless_mapped:
            for name, nbytes in sizes.items():
                made[name] = Region(name, kind, roomy(kind, nbytes, spare=self.options.roomy()))
                unless_mapped.callback(made[name].close)
            steps = [Attach(region=name, kind=kind, nbytes=region.nbytes) for name, region in made.items()]
            evidence = self.run(steps, START_SECONDS, [region.descriptor for region in made.values()])
            if (failure := evidence.failure) is not None:
                raise self.lost(*worker_process.describe_attach_failure(steps[failure.step].region, failure))
            unless_mapped.pop_all()
        replaced, self._regions = self._regions, {**self._regions, **made}
        for name in replaced.keys() & made.keys():
            replaced[name].close()

    def forget_results(self) -> None:
        """Have the worker drop the results of the last job, after reading those that are still in use.

        Raises WorkerLost.
        """
        if self.read_results is not None:
            read, self.read_results = self.read_results, None
            read()
            self.run([Drop(keep_bytes=None)], START_SECONDS)

    @property
    def region_bytes(self) -> int:
        """Bytes of the regions."""
        return sum(region.nbytes for region in self._regions.values())

    def release_memory(self) -> None:
        """Free the memory of the regions; the next job creates them again."""
        for kind in {region.kind for region in self._regions.values()}:
            self._make({name: 1 for name, region in self._regions.items() if region.kind == kind}, kind)

    def output(self) -> str:
        """Return what the worker printed, head and tail."""
        return self._process.output().text

    @property
    def ended(self) -> bool:
        """No process of the worker is left."""
        return self._process.ended

    def dismiss(self) -> None:
        """End the worker and free what is shared, without waiting: on a GPU it takes a tenth of a second."""
        self._process.end()
        self._hang_up()

    def close(self) -> None:
        """End the worker and wait until no process is left."""
        self._process.kill()
        self._hang_up()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        for region in self._regions.values():
            region.close()
        self._regions.clear()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _new_job(steps: Sequence[Step]) -> Job:
        return Job(id=secrets.randbits(62), steps=tuple(steps))  # random: no answer can be written before the job came

    def _checked(self, job: Job, evidence: Evidence) -> Evidence:
        try:
            protocol.check_answer(job, evidence)
        except protocol.MalformedMessage as error:
            raise self.lost(Status.INTEGRITY_VIOLATION, f"sent an evidence that does not fit: {error}") from None
        return evidence

    def _send(self, job: Job, descriptors: Sequence[int], deadline: float) -> None:
        try:
            self._socket.send(protocol.encode(job), descriptors, deadline)
        except SocketTimeout:
            raise self.lost(Status.TIMEOUT, "does not read its jobs") from None
        except SocketClosed:
            raise self._lost_by_end() from None

    def _receive(
        self,
        deadline: float,
        timeout_seconds: float = START_SECONDS,
        at_answer: Callable[[], None] | None = None,
        patience_seconds: float | None = None,
    ) -> Evidence:
        try:
            if patience_seconds is None:
                self._socket.await_readable(deadline)
            else:
                self._socket.readable(patience_seconds)
            if at_answer is not None:
                at_answer()
            (length,) = HEADER.unpack(self._socket.read(HEADER.size, deadline))
            if length > MAX_EVIDENCE_BYTES:
                raise self.lost(Status.INTEGRITY_VIOLATION, f"announced an evidence of {length} bytes")
            answer, self.answered_at = self._socket.read(length, deadline), time.perf_counter()
            return protocol.decode_evidence(answer)
        except SocketTimeout:
            raise self.lost(*worker_process.describe_silence(self._process.roots, timeout_seconds)) from None
        except SocketClosed:
            raise self._lost_by_end() from None
        except protocol.MalformedMessage as error:
            raise self.lost(Status.INTEGRITY_VIOLATION, f"sent a malformed evidence: {error}") from None

    def lost(self, status: Status, message: str, killer: Killer | None = None) -> WorkerLost:
        """Kill the worker and return the exception to raise."""
        self._process.kill()
        return WorkerLost(status, message, self.output(), killer, f"{self._jobs}: {compressed_kinds(self._last_steps)}")

    def _lost_before_job(self) -> WorkerLost:
        """The worker sent something, or ended, while it had no job."""
        if self._socket.has_byte():
            return self.lost(Status.INTEGRITY_VIOLATION, "answered before it had a job")
        return self._lost_by_end()

    def _lost_by_end(self) -> WorkerLost:
        """The socket closed: find out how the process ended. Raises SandboxError if its zygote ended."""
        exit_ = self._process.wait(timeout_seconds=5.0)
        if self._zygote is not None and self._zygote.ended:
            raise SandboxError(f"the process that workers are copied from was ended; {self._zygote.last_words()}")
        if exit_ is None:
            return self.lost(Status.CRASHED, "closed its control socket")
        return self.lost(*worker_process.describe_exit(exit_, self.options.limits))
