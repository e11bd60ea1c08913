"""Composes one job: tensors to send, steps to carry out, tensors to bring back sealed.

    script = JobBuilder(worker, Device.CPU)
    script.put_inputs("a", case.inputs, requires_grad=True)
    script.forward("model", "a", tape="a", grad=True)
    script.export({"output:a:output": TensorSpec((8, 4), torch.float32)})
    finding = script.run(timeout_seconds=60)

Sealing: the outbox is poisoned before the job is sent, and copied to private memory when the first byte of the answer
arrives. Work that a worker finishes later is not seen.

Large tensors: a job that would need regions of more than REGION_BYTES is sent in segments, each with its own tensors in
the inbox, and what it exports stays in the worker until it is read, one tensor at a time. Callers see no difference.
"""

from __future__ import annotations

import math
import random
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from grader import protocol as p
from grader.executor.client import WorkerClient, WorkerLost
from grader.executor.shared_memory import Layout, Region, typed
from grader.machine.backends import backend
from grader.verdict.models import Device

SEAL_BLOCK_BYTES = 64 << 10
SEAL_BLOCKS = 32
_SHUFFLE = random.SystemRandom()

GENEROUS_BYTES = 3 << 28
"""From this size on, the referee keeps no device memory in reserve while a worker computes what is not timed."""
READ_SECONDS = 120.0
"""Time limit for one deferred tensor to be copied out."""
REGION_BYTES = 1 << 30
"""Largest inbox or outbox of an untimed job, unless a single tensor needs more."""
CotangentLayout = Literal["contiguous", "expanded", "transposed", "sliced"]


class TensorSpec(NamedTuple):
    """What a sealed tensor must be."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of a dense tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    @staticmethod
    def of(info: p.TensorInfo) -> TensorSpec:
        assert info.shape is not None
        assert info.dtype is not None
        return TensorSpec(info.shape, getattr(torch, info.dtype))


@dataclass(frozen=True)
class JobResult:
    """One job's evidence, with the tensors that came back."""

    evidence: p.Evidence
    sealed: Mapping[str, torch.Tensor]
    """Private copies by export source; a source that the worker refused is missing."""
    refused: Mapping[str, p.TensorInfo]
    """What the worker has in place of a source that it could not export."""
    bracket_ms: float
    """From the first input's release to the last output's seal, by the referee's clock."""
    queued: bool = True
    """The worker had queued all its work before the inputs were released (remote/timeline.py)."""

    @property
    def failure(self) -> p.Failure | None:
        return self.evidence.failure

    def take(self, source: str) -> torch.Tensor | None:
        """The sealed tensor, which this result forgets; None for a source that the worker refused."""
        if isinstance(self.sealed, Deferred):
            return self.sealed.take(source)
        return self.sealed.get(source)

    def lost_as(self, error_for: Callable[[WorkerLost], Exception]) -> None:
        """What to raise when the worker is lost while a deferred tensor is read."""
        if isinstance(self.sealed, Deferred):
            self.sealed.error_for = error_for

    def of(self, kind: type[Any]) -> list[Any]:
        """The results of one kind, in order: one for each step of theirs where no step raised."""
        return [result for result in self.evidence.results if isinstance(result, kind)]


@dataclass
class Segment:
    """A part of a job whose tensors lie in the inbox together."""

    first_step: int
    layout: Layout = field(default_factory=Layout)
    values: list[tuple[p.Slot, torch.Tensor]] = field(default_factory=list)
    placed: dict[int, p.Slot] = field(default_factory=dict)
    """Slots by the tensor's id: the same tensor is sent once."""


class JobBuilder:
    """A job in the making. Tensors are copied into the inbox when it runs."""

    _queues = False
    """The worker does not wait for what it exports."""

    def __init__(self, worker: WorkerClient, device: Device, *, at_once: bool = False) -> None:
        """`at_once`: one segment, nothing deferred, as timed jobs need it."""
        self._worker, self._at_once = worker, at_once
        self._backend = backend(device)
        self._kind = self._backend.region_kind
        self._steps: list[p.Step] = []
        self._segments = [Segment(0)]
        self._back = Layout()
        self._exports: dict[str, p.Slot] = {}
        self._deferred: dict[str, tuple[TensorSpec, bool]] = {}
        """Exports that are read after the job, with whether they are widened."""

    @property
    def length(self) -> int:
        """Steps so far."""
        return len(self._steps)

    def step(self, step: p.Step) -> None:
        if isinstance(step, p.Drop) and self._deferred:
            step = step.model_copy(update={"keep_results": True})
        self._steps.append(step)

    def put_inputs(
        self,
        key: str,
        inputs: Sequence[object],
        *,
        requires_grad: bool = False,
        float64: bool = False,
        reuse_addresses: bool = False,
        layout: Literal["contiguous", "strided"] = "contiguous",
    ) -> None:
        self._make_room(value for value in inputs if isinstance(value, torch.Tensor))
        arguments = []
        for value in inputs:
            if isinstance(value, torch.Tensor):
                grad = requires_grad and value.is_floating_point()
                arguments.append(p.Argument(slot=self.place(value), requires_grad=grad, layout=layout))
            else:
                arguments.append(p.Argument(value=p.encode_value(value)))
        self._steps.append(
            p.PutInputs(inputs=key, arguments=tuple(arguments), reuse_addresses=reuse_addresses, float64=float64)
        )

    def set_state(self, model: str, values: Mapping[str, torch.Tensor]) -> None:
        if values:
            self._make_room(values.values())
            slots = {name: self.place(value) for name, value in values.items()}
            self._steps.append(p.SetState(model=model, values=slots))

    def cotangents(
        self, values: Mapping[str, torch.Tensor], layout: CotangentLayout = "contiguous"
    ) -> dict[str, p.Cotangent]:
        """grad_outputs by output name, for a `Backward` or `TimedCall`.

        For `expanded` the values must be constant along the first dimension of extent over 1, which is then sent once.
        """
        self._make_room(values.values())
        given = {}
        for name, value in values.items():
            if layout == "expanded":
                axis = expandable_axis(value.shape)
                if axis is not None:
                    slot = self.place(value.narrow(axis, 0, 1))
                    given[name] = p.Cotangent(slot=slot, layout=layout, expand_to=tuple(value.shape))
                    continue
            given[name] = p.Cotangent(slot=self.place(value), layout="contiguous" if layout == "expanded" else layout)
        return given

    def export(self, wanted: Mapping[str, TensorSpec], *, widen: bool = False) -> None:
        """`widen`: floats that are narrower there come in the dtype that is wanted."""
        if not self._at_once and self._back.nbytes + sum(spec.nbytes for spec in wanted.values()) > REGION_BYTES:
            self._deferred.update({source: (spec, widen) for source, spec in wanted.items()})
            return
        slots = {source: self._back.place(spec.dtype, spec.shape) for source, spec in wanted.items()}
        self._exports.update(slots)
        self._steps.append(p.Export(items=slots, queued=self._queues, widen=widen))

    def place(self, value: torch.Tensor) -> p.Slot:
        """A slot for this tensor in the inbox; the same tensor is sent once."""
        segment = self._segments[-1]
        if id(value) not in segment.placed:
            slot = segment.placed[id(value)] = segment.layout.place(value.dtype, value.shape)
            segment.values.append((slot, value))
        return segment.placed[id(value)]

    def _make_room(self, values: Iterable[torch.Tensor]) -> None:
        """Begin a new segment where the next step's tensors do not fit beside those before. Timed jobs have one."""
        segment = self._segments[-1]
        more = sum(value.nbytes for value in values if id(value) not in segment.placed)
        if not self._at_once and segment.layout.nbytes and segment.layout.nbytes + more > REGION_BYTES:
            self._segments.append(Segment(len(self._steps)))

    def run(self, timeout_seconds: float) -> JobResult:
        """Raises WorkerLost."""
        self._worker.forget_results()
        seal = self._make_seal()
        if self._largest_inbox() + self._back.nbytes > GENEROUS_BYTES:
            self._backend.empty_cache()
        # From here on the worker could see values that it is to compute with: the clock runs.
        started = time.perf_counter()
        evidence = self._run_segments(timeout_seconds, seal)
        return self._found(evidence, seal, bracket_ms=(seal.taken_at - started) * 1e3)

    def _run_segments(self, timeout_seconds: float, seal: Seal) -> p.Evidence:
        """All segments' evidence as one; the outbox is sealed when the last one's answer begins."""
        ends = [segment.first_step for segment in self._segments[1:]] + [len(self._steps)]
        evidence: p.Evidence | None = None
        for segment, end in zip(self._segments, ends, strict=True):
            self._release(segment)
            self._backend.synchronize()
            last = end == len(self._steps)
            steps = self._steps[segment.first_step : end]
            part = self._worker.run(steps, timeout_seconds, at_answer=seal.take if last else None)
            evidence = part if evidence is None else joined(evidence, part)
            if evidence.failure is not None:
                break
        assert evidence is not None
        if not seal.taken_at:
            seal.take()
        return evidence

    def _largest_inbox(self) -> int:
        return max(segment.layout.nbytes for segment in self._segments)

    def _make_seal(self) -> Seal:
        """Both regions attached, the outbox poisoned, the device idle."""
        self._worker.region("inbox", self._kind, self._largest_inbox())
        outbox = self._worker.region("outbox", self._kind, self._back.nbytes)
        outbox.poison(self._back.nbytes)
        seal = Seal(outbox, self._back.nbytes)
        self._backend.synchronize()
        return seal

    def _release(self, segment: Segment) -> None:
        """Copy what is sent into the inbox."""
        inbox = self._worker.region("inbox", self._kind, self._largest_inbox())
        for slot, value in segment.values:
            inbox.view(slot).copy_(value, non_blocking=True)

    def _found(self, evidence: p.Evidence, seal: Seal, *, bracket_ms: float, queued: bool = True) -> JobResult:
        refused = {
            info.name: info for result in evidence.results if isinstance(result, p.Exported) for info in result.refused
        }
        exported = {
            source
            for step, result in zip(self._steps, evidence.results, strict=False)
            if isinstance(step, p.Export) and isinstance(result, p.Exported)
            for source in step.items
        }
        sealed = {
            source: seal.view(slot)
            for source, slot in self._exports.items()
            if source in exported and source not in refused
        }
        results = dict(sealed)
        if self._deferred and evidence.failure is None:
            deferred = Deferred(results, self._deferred, refused, self._worker, self._kind)
            self._worker.read_results = partial(_read_rest, weakref.ref(deferred))
            return JobResult(evidence, deferred, refused, bracket_ms, queued)
        return JobResult(evidence=evidence, sealed=results, refused=refused, bracket_ms=bracket_ms, queued=queued)


class Deferred(Mapping[str, torch.Tensor]):
    """Sealed tensors of one job, the large ones copied out of the worker when they are first read.

    Those that are left when the worker gets its next job are read then, unless this has been let go.
    """

    def __init__(
        self,
        sealed: dict[str, torch.Tensor],
        later: Mapping[str, tuple[TensorSpec, bool]],
        refused: dict[str, p.TensorInfo],
        worker: WorkerClient,
        kind: Literal["host", "cuda"],
    ) -> None:
        self._sealed, self._later, self._refused = sealed, dict(later), refused
        self._worker, self._device = worker, Device.CUDA if kind == "cuda" else Device.CPU
        self.error_for: Callable[[WorkerLost], Exception] = lambda lost: lost

    def take(self, source: str) -> torch.Tensor | None:
        """The tensor, not kept here; None where the worker refused it."""
        value = self.get(source)
        self._sealed.pop(source, None)
        return value

    def __getitem__(self, source: str) -> torch.Tensor:
        if source not in self._sealed and source in self._later:
            self._read(source, *self._later.pop(source))
        return self._sealed[source]

    def __iter__(self) -> Iterator[str]:
        return iter([source for source in (*self._sealed, *self._later) if source in self])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, source: object) -> bool:
        return isinstance(source, str) and self.get(source) is not None

    def read_rest(self) -> None:
        """All that has not been read."""
        for source in list(self._later):
            self.get(source)

    def _read(self, source: str, spec: TensorSpec, widen: bool) -> None:
        job = SingleExport(self._worker, self._device)
        job.export({source: spec}, widen=widen)
        try:
            result = job.run(READ_SECONDS)
        except WorkerLost as lost:
            raise self.error_for(lost) from lost
        self._refused.update(result.refused)
        self._sealed.update(result.sealed)


def _read_rest(deferred: Callable[[], Deferred | None]) -> None:
    alive = deferred()
    if alive is not None:
        alive.read_rest()


class SingleExport(JobBuilder):
    """Reads one deferred tensor of the job before, which stays in the worker."""

    def __init__(self, worker: WorkerClient, device: Device) -> None:
        super().__init__(worker, device, at_once=True)

    def run(self, timeout_seconds: float) -> JobResult:
        rest, self._worker.read_results = self._worker.read_results, None
        try:
            return super().run(timeout_seconds)
        finally:
            self._worker.read_results = rest


def joined(first: p.Evidence, second: p.Evidence) -> p.Evidence:
    """The evidence of two segments of one job."""
    failure = second.failure
    if failure is not None:
        failure = failure.model_copy(update={"step": failure.step + len(first.results)})
    return second.model_copy(
        update={
            "results": first.results + second.results,
            "failure": failure,
            "peak_device_bytes": max(first.peak_device_bytes, second.peak_device_bytes),
        }
    )


class Seal:
    """A private copy of an outbox, taken at once when the worker begins to answer.

    Host memory is copied block by block in an order drawn for each time: who goes on writing behind his answer cannot
    stay ahead of the copy.
    """

    def __init__(self, outbox: Region, nbytes: int) -> None:
        self._from = outbox.flat[:nbytes]
        self._bytes = torch.empty_like(self._from)
        if not self._from.is_cuda:
            self._bytes.zero_()  # its pages are there before the clock runs
        self.taken_at = 0.0

    def take(self) -> None:
        if self._from.is_cuda:
            self.queue()
            torch.cuda.synchronize()
        else:
            block = max(SEAL_BLOCK_BYTES, self._from.numel() // SEAL_BLOCKS)
            starts = list(range(0, self._from.numel(), block))
            _SHUFFLE.shuffle(starts)
            for start in starts:
                self._bytes[start : start + block].copy_(self._from[start : start + block])
        self.taken_at = time.perf_counter()

    def queue(self) -> None:
        """Take it when the device's current stream gets there."""
        self._bytes.copy_(self._from)

    def view(self, slot: p.Slot) -> torch.Tensor:
        return typed(self._bytes, slot)


def expandable_axis(shape: Sequence[int]) -> int | None:
    """The first dimension of extent over 1, along which an expanded grad_output is constant."""
    return next((axis for axis, extent in enumerate(shape) if extent > 1), None)
