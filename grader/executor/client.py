"""One worker process in its sandbox, as the referee sees it: jobs out, checked evidence in, or lost."""

from __future__ import annotations

import contextlib
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from grader import protocol
from grader.errors import SandboxError
from grader.executor.pause import NeverStill, paused, paused_tree
from grader.executor.shared_memory import Region
from grader.executor.worker_template import DEFAULT_ARCHITECTURE, MODULE
from grader.machine.backends import backend
from grader.protocol import HEADER, MAX_EVIDENCE_BYTES, Attach, Drop, Evidence, Job, Step, Warm, Warmed
from grader.sandbox import Limits, Sandbox, SandboxedProcess, Zygote
from grader.verdict.models import Device, Status

START_SECONDS = 120.0
"""A worker that has not imported torch by then is our failure, not the submission's."""


LEAST_SPARE_BYTES, MOST_SPARE_BYTES = 32 << 20, 5 << 28
"""A region with room to grow is twice as large as asked for, since a backward shares twice what the forward before it
did, and so much larger at least and at most."""


class WorkerLost(Exception):
    """The worker is gone or of no more use. No error of ours: for a submission it is the verdict.

    `status` is one of crashed, timeout, out_of_memory, integrity_violation.
    """

    def __init__(self, status: Status, message: str, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.output = output


@dataclass(frozen=True)
class WorkerOptions:
    """How to start a worker."""

    limits: Limits
    gpu: bool = False
    """GPU devices are visible."""
    roomy: bool = False
    """On a GPU with ample memory, what is shared with it has room to grow."""
    environment: Mapping[str, str] = field(default_factory=dict)
    readonly: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    niceness: int = 0
    """Of it and all that it starts."""
    architecture: str = DEFAULT_ARCHITECTURE
    """What CUDA extensions are compiled for."""


class WorkerClient:
    """Starts at once; `wait_ready` or the first `run` waits until it listens."""

    def __init__(self, sandbox: Sandbox, options: WorkerOptions, zygote: Zygote | None = None) -> None:
        """A copy of the zygote, whose module is `MODULE` and whose environment is the options'; else started anew."""
        self.options, self._zygote = options, zygote
        self.peak_device_bytes = 0
        self.pace: Warmed | None = None
        """How quickly the GPU takes up its work, seen before anybody's code is there; None until one is warm."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.read_results: Callable[[], None] | None = None
        """Reads what is left of the last job's results that wait in the worker (job.Deferred); None where none do."""
        self._ready = False
        self._warming: Job | None = None
        self._regions: dict[str, Region] = {}
        self._seen: set[int] = set()
        """Its processes, when they were paused last, where nobody keeps account of them."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._socket.setblocking(False)
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.callback(self._selector.close)
            unless_started.callback(self._socket.close)
            self._process = _start(sandbox, options, theirs.fileno(), zygote)
            unless_started.pop_all()

    def warm_up(self, *, counts: bool = False) -> None:
        """Have its context on the GPU made, without waiting for it. Whether that went well, `wait_ready` tells.

        With `counts` it will be asked what operations do.
        """
        if self.options.gpu and not self._ready and self._warming is None:
            self._warming = self._new_job([Warm(counts=counts)])
            with contextlib.suppress(WorkerLost):
                self._send(protocol.encode(self._warming), (), time.monotonic() + START_SECONDS)

    def wait_ready(self) -> None:
        """Raises SandboxError when the worker dies before it listens: nobody's code but ours has run in it."""
        if self._ready:
            return
        deadline = time.monotonic() + START_SECONDS
        try:
            self._receive(deadline)
            if self._warming is not None:
                evidence = self._checked(self._warming, self._receive(deadline))
                self.pace = next((of for of in evidence.results if isinstance(of, Warmed)), None)
        except WorkerLost as lost:
            said = lost.output.strip().splitlines() or [self._zygote.last_words() if self._zygote else ""]
            raise SandboxError(f"a worker did not start: {lost}; {said[-1]}") from lost
        self._ready = True

    def run(
        self,
        steps: Sequence[Step],
        timeout_seconds: float,
        descriptors: Sequence[int] = (),
        at_answer: Callable[[], None] | None = None,
        patience_seconds: float | None = None,
    ) -> Evidence:
        """Have one job carried out. Raises WorkerLost, or SandboxError for a worker that never listened; a step that
        raised is in the evidence.

        The evidence fits the job: `protocol.check_answer`. `at_answer` is called when the first byte of it is there,
        before anything is read, and no later than `patience_seconds` after the job was sent.
        """
        self.wait_ready()
        if self._selector.select(0):
            self._read_ahead()
        job = self._new_job(steps)
        deadline = time.monotonic() + timeout_seconds
        self._send(protocol.encode(job), descriptors, deadline)
        evidence = self._checked(job, self._receive(deadline, timeout_seconds, at_answer, patience_seconds))
        self.peak_device_bytes = max(self.peak_device_bytes, evidence.peak_device_bytes)
        return evidence

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """None of its processes runs meanwhile. Raises WorkerLost where they cannot be held."""
        try:
            roots, members = self._process.roots, self._process.members
            with paused(members) if members is not None else paused_tree(roots, self._seen):
                yield
        except NeverStill as error:
            raise self.lost(Status.INTEGRITY_VIOLATION, str(error)) from None

    def region(self, name: Literal["inbox", "outbox"], kind: Literal["host", "cuda"], nbytes: int) -> Region:
        """The region, made anew and attached when it is too small or of the other kind."""
        present = self._regions.get(name)
        if present is not None and present.kind == kind and present.nbytes >= nbytes:
            return present
        if present is not None:
            self._regions.pop(name).close()
        if kind == "cuda" and self.options.roomy and backend(Device.CUDA).ample_memory():
            nbytes += min(nbytes + LEAST_SPARE_BYTES, MOST_SPARE_BYTES)  # making it anew takes a busy driver 30 ms
        region = self._regions[name] = Region(name, kind, nbytes)
        evidence = self.run([Attach(region=name, kind=kind, nbytes=region.nbytes)], START_SECONDS, [region.descriptor])
        if evidence.failure is not None:
            raise self.lost(Status.OUT_OF_MEMORY, f"could not map its {name}: {evidence.failure.text}")
        return region

    def forget_results(self) -> None:
        """Have the worker drop results of the last job; those that somebody may still read are read. Raises
        WorkerLost."""
        if self.read_results is not None:
            read, self.read_results = self.read_results, None
            read()
            self.run([Drop(empty_cache=False)], START_SECONDS)

    def release_memory(self) -> None:
        """Give the regions' memory back; the next job makes them anew."""
        for name in ("inbox", "outbox"):
            if name in self._regions:
                kind = self._regions[name].kind
                self._regions.pop(name).close()
                self.region(name, kind, 1)

    def output(self) -> str:
        """What the worker printed, head and tail."""
        return self._process.output().text

    @property
    def ended(self) -> bool:
        """Nothing of it is left."""
        return self._process.ended

    def dismiss(self) -> None:
        """Have it ended, and give back what is shared with it; `close` waits, on a GPU a tenth of a second."""
        self._process.end()
        self._hang_up()

    def close(self) -> None:
        self._process.kill()
        self._hang_up()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._selector.close()
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
        # Drawn, so that a worker cannot write the answer to a job before it has the job.
        return Job(id=secrets.randbits(62), steps=tuple(steps))

    def _checked(self, job: Job, evidence: Evidence) -> Evidence:
        try:
            protocol.check_answer(job, evidence)
        except protocol.MalformedMessage as error:
            raise self.lost(Status.INTEGRITY_VIOLATION, f"sent an evidence that does not fit: {error}") from None
        return evidence

    def _send(self, message: bytes, descriptors: Sequence[int], deadline: float) -> None:
        sent = 0
        with selectors.DefaultSelector() as writable:
            writable.register(self._socket, selectors.EVENT_WRITE)
            while sent < len(message):
                if not writable.select(max(0.0, deadline - time.monotonic())):
                    raise self.lost(Status.TIMEOUT, "does not read its jobs")
                try:
                    if sent == 0 and descriptors:
                        sent = socket.send_fds(self._socket, [message], list(descriptors))
                    else:
                        sent += self._socket.send(message[sent:])
                except BlockingIOError:
                    continue
                except OSError:
                    raise self._ended() from None

    def _receive(
        self,
        deadline: float,
        timeout_seconds: float = START_SECONDS,
        at_answer: Callable[[], None] | None = None,
        patience_seconds: float | None = None,
    ) -> Evidence:
        if patience_seconds is None:
            self._await(deadline, timeout_seconds)
        else:
            self._selector.select(patience_seconds)
        if at_answer is not None:
            at_answer()
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline, timeout_seconds))
        if length > MAX_EVIDENCE_BYTES:
            raise self.lost(Status.INTEGRITY_VIOLATION, f"announced an evidence of {length} bytes")
        try:
            return protocol.decode_evidence(self._read(length, deadline, timeout_seconds))
        except protocol.MalformedMessage as error:
            raise self.lost(Status.INTEGRITY_VIOLATION, f"sent a malformed evidence: {error}") from None

    def _read_ahead(self) -> None:
        """Bytes that came before they were asked for, or the end."""
        try:
            early = self._socket.recv(1)
        except OSError:
            early = b""
        if early:
            raise self.lost(Status.INTEGRITY_VIOLATION, "answered before it was asked")
        raise self._ended()

    def _await(self, deadline: float, timeout_seconds: float) -> None:
        if not self._selector.select(max(0.0, deadline - time.monotonic())):
            raise self.lost(Status.TIMEOUT, f"gave no answer within {timeout_seconds:g} s")

    def _read(self, count: int, deadline: float, timeout_seconds: float) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            self._await(deadline, timeout_seconds)
            try:
                chunk = self._socket.recv(min(count - len(chunks), 1 << 20))
            except BlockingIOError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                raise self._ended()
            chunks += chunk
        return bytes(chunks)

    def lost(self, status: Status, message: str) -> WorkerLost:
        """To be raised: the worker is killed for it."""
        self._process.kill()
        return WorkerLost(status, message, self.output())

    def _ended(self) -> WorkerLost:
        """The socket closed: find out how the process ended. Raises SandboxError where that was no doing of its own."""
        exit_ = self._process.wait(timeout_seconds=5.0)
        if self._zygote is not None and self._zygote.ended:
            said = self._zygote.last_words()
            raise SandboxError(f"the process that workers are copied from was ended, and they with it; {said}")
        if exit_ is None:
            return self.lost(Status.CRASHED, "closed its control socket")
        self._process.kill()
        if exit_.timed_out:
            return self.lost(Status.TIMEOUT, f"was stopped after {exit_.wall_seconds:.0f} s")
        if exit_.out_of_memory:
            limit = self.options.limits.memory_bytes / 2**30
            return self.lost(Status.OUT_OF_MEMORY, f"used more than its {limit:.0f} GiB of memory")
        if exit_.signal is not None:
            return self.lost(Status.CRASHED, f"was ended by {signal_name(exit_.signal)}")
        return self.lost(Status.CRASHED, f"exited with status {exit_.returncode} before it answered")


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _start(sandbox: Sandbox, options: WorkerOptions, descriptor: int, zygote: Zygote | None) -> SandboxedProcess:
    spawn: Callable[..., SandboxedProcess]
    if zygote is not None:
        spawn = partial(sandbox.spawn_copy, zygote, [options.niceness, options.architecture])
    else:
        # No garbage is looked for before it listens, which saves some of importing torch.
        told = f"{descriptor}, {options.niceness}, {options.architecture!r}"
        code = f"import gc; gc.disable(); from {MODULE} import main; main({told})"
        spawn = partial(sandbox.spawn, [sys.executable, "-c", code], environment=options.environment)
    return spawn(
        limits=options.limits,
        gpu=options.gpu,
        pass_fds=(descriptor,),
        readonly=options.readonly,
        hidden=options.hidden,
    )
