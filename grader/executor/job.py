"""Builds and runs one job: tensors to send, steps to carry out, tensors to bring back sealed.

    job = JobBuilder(worker, Device.CPU)
    job.put_inputs("a", case.inputs, requires_grad=True)
    job.step(protocol.Forward(model="model", inputs="a", tape="a", grad=True))
    job.export({"output:a:output": TensorSpec((8, 4), torch.float32)})
    result = job.run(timeout_seconds=60)

Sealing: the outbox is poisoned before the job is sent, and copied to private memory when the first byte of the answer
arrives. What a worker writes later is not in the copy.

Large tensors: a job that needs regions of more than REGION_BYTES is sent in segments, each with its own tensors in the
inbox, and its exports stay in the worker until they are read, one tensor at a time. Callers see no difference.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch

from grader import protocol as p
from grader.executor.client import WorkerClient
from grader.executor.job_result import Deferred, JobResult, TensorSpec, exported, joined
from grader.executor.shared_memory import Layout, Seal
from grader.machine.backends import backend
from grader.protocol.regions import copy_each
from grader.verdict.models import Device

LARGE_JOB_BYTES = 3 << 28
"""From this size of shared tensors on, the referee frees its cached device memory before an untimed job."""
READ_SECONDS = 120.0
"""Time limit for copying all deferred tensors of a job out."""
REGION_BYTES = 1 << 30
"""Largest inbox or outbox of an untimed job, unless a single tensor needs more."""
CotangentLayout = Literal["contiguous", "expanded", "transposed", "sliced"]
WAIT = p.Export(items={})
"""Has the worker wait for its device before it answers: the next segment overwrites what it may still read."""


@dataclass
class Segment:
    """A part of a job whose tensors are in the inbox at the same time."""

    first_step: int
    layout: Layout = field(default_factory=Layout)
    values: list[tuple[p.Slot, torch.Tensor]] = field(default_factory=list)
    placed: dict[int, p.Slot] = field(default_factory=dict)
    """Slots by the `id` of the tensor, which is sent once."""


class JobBuilder:
    """Collects steps and tensors; the tensors are copied into the inbox when the job runs."""

    _queues = False
    """Exports do not wait for the device."""
    _keeps_order = True
    """Exports that are all read at once come in the order of their memory."""

    def __init__(self, worker: WorkerClient, device: Device, *, at_once: bool = False) -> None:
        """With `at_once` there is one segment and nothing is deferred, as timed jobs need it."""
        self._worker, self._device, self._at_once = worker, device, at_once
        self._backend = backend(device)
        self._kind = self._backend.region_kind
        self._steps: list[p.Step] = []
        self._segments = [Segment(0)]
        self._outbox = Layout()
        self._unsealed_bytes = 0
        """Bytes at the start of the outbox that are no tensor's."""
        self._exports: dict[str, p.Slot] = {}
        self._deferred: dict[str, tuple[TensorSpec, bool]] = {}
        """Exports that are read after the job: their specs, and whether they are widened."""

    @property
    def length(self) -> int:
        """Number of steps so far."""
        return len(self._steps)

    @property
    def deferred(self) -> bool:
        """Whether some exports are read after the job."""
        return bool(self._deferred)

    def failed_in_forward(self, failure: p.Failure) -> bool:
        """Whether the step that raised is a call of the model, and not one that reads what it returned."""
        return isinstance(self._steps[failure.step], p.Forward)

    def step(self, step: p.Step) -> None:
        """Append a step; a `Drop` keeps the results that are read after the job."""
        if isinstance(step, p.Drop) and self._deferred:
            step = step.model_copy(update={"keep_results": True})
        self._steps.append(step)

    def begin_with(self, steps: Sequence[p.Step]) -> None:
        """Insert steps that need no tensors before all others."""
        self._steps[:0] = steps
        for segment in self._segments[1:]:
            segment.first_step += len(steps)

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
        """Append a `PutInputs` of tensors and plain values.

        With `requires_grad`, floating-point and complex tensors require a gradient.
        """
        self._make_room(value for value in inputs if isinstance(value, torch.Tensor))
        arguments = []
        for value in inputs:
            if isinstance(value, torch.Tensor):
                grad = requires_grad and value.itemsize > 1 and (value.is_floating_point() or value.is_complex())
                arguments.append(p.Argument(slot=self.place(value), requires_grad=grad, layout=layout))
            else:
                arguments.append(p.Argument(value=p.encode_value(value)))
        self._steps.append(
            p.PutInputs(inputs=key, arguments=tuple(arguments), reuse_addresses=reuse_addresses, float64=float64)
        )

    def set_state(self, model: str, values: Mapping[str, torch.Tensor]) -> None:
        """Append a `SetState`, unless there are no values."""
        if values:
            self._make_room(values.values())
            slots = {name: self.place(value) for name, value in values.items()}
            self._steps.append(p.SetState(model=model, values=slots))

    def load_state(self, model: str, values: Mapping[str, torch.Tensor]) -> None:
        """Append a `LoadState`."""
        self._make_room(values.values())
        self._steps.append(
            p.LoadState(model=model, values={name: self.place(tensor) for name, tensor in values.items()})
        )

    def cotangents(
        self, values: Mapping[str, torch.Tensor], layout: CotangentLayout = "contiguous"
    ) -> dict[str, p.Cotangent]:
        """Place grad_outputs in the inbox and return them by output name, for a `Backward` or a timed part.

        For `expanded`, the values must be constant along their `expandable_axis`, which is sent once.
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

    def export(self, specs: Mapping[str, TensorSpec], *, convert: bool = False) -> None:
        """Append an `Export`; with `convert`, floats are converted to the spec's dtype."""
        if not self._at_once and self._outbox.nbytes + sum(spec.nbytes for spec in specs.values()) > REGION_BYTES:
            self._deferred.update({source: (spec, convert) for source, spec in specs.items()})
            return
        slots = {source: self._outbox.place(spec.dtype, spec.shape) for source, spec in specs.items()}
        self._exports.update(slots)
        keeps_order = self._at_once and self._keeps_order
        self._steps.append(p.Export(items=slots, queued=self._queues, convert=convert, keeps_order=keeps_order))

    def place(self, value: torch.Tensor) -> p.Slot:
        """Return the tensor's slot in the inbox; a tensor that is placed twice is sent once."""
        segment = self._segments[-1]
        if id(value) not in segment.placed:
            slot = segment.placed[id(value)] = segment.layout.place(value.dtype, value.shape)
            segment.values.append((slot, value))
        return segment.placed[id(value)]

    def _make_room(self, values: Iterable[torch.Tensor]) -> None:
        """Start a new segment if the next step's tensors do not fit into this one; a timed job has one only."""
        segment = self._segments[-1]
        more = sum(value.nbytes for value in values if id(value) not in segment.placed)
        if not self._at_once and segment.layout.nbytes and segment.layout.nbytes + more > REGION_BYTES:
            self._steps.append(WAIT)
            self._segments.append(Segment(len(self._steps)))

    def run(self, timeout_seconds: float) -> JobResult:
        """Run the job and return its result. Every wait counts against its limit. Raises WorkerLost."""
        with self._worker.within(timeout_seconds):
            return self._run(timeout_seconds)

    def _run(self, timeout_seconds: float) -> JobResult:
        if self._deferred:
            self._steps.append(WAIT)
        self._worker.forget_results()
        if self._largest_inbox() + self._outbox.nbytes > LARGE_JOB_BYTES:
            self._backend.empty_cache()
        seal = self._make_seal()
        timed = self._at_once and self._backend.on_host
        waited_before = self._worker.waited_ms() if timed else 0.0
        # From here on the worker could see the values that it computes with, so the clock runs.
        started = time.perf_counter()
        evidence = self._run_segments(timeout_seconds, seal)
        # Up to the last byte of the answer: a worker may send the first one, do other work, and then send the rest.
        interval_ms = (self._worker.answered_at - started) * 1e3
        waited = self._worker.waited_ms() - waited_before if timed else 0.0
        return self._result(evidence, seal, interval_ms=interval_ms, waited_ms=max(0.0, waited))

    def _run_segments(self, timeout_seconds: float, seal: Seal) -> p.Evidence:
        """Run all segments and join their evidence; the outbox is sealed when the last answer begins."""
        ends = [segment.first_step for segment in self._segments[1:]] + [len(self._steps)]
        evidence: p.Evidence | None = None
        for segment, end in zip(self._segments, ends, strict=True):
            self._release(segment)
            self._backend.synchronize()
            last = end == len(self._steps)
            steps = self._steps[segment.first_step : end]
            part = self._worker.run(
                steps,
                timeout_seconds,
                at_answer=seal.take if last else None,
                bytes_in=segment.layout.nbytes,
                bytes_out=self._outbox.nbytes if last else 0,
            )
            evidence = part if evidence is None else joined(evidence, part)
            if evidence.failure is not None:
                break
        assert evidence is not None
        if not seal.taken:
            seal.take()
        return evidence

    def _largest_inbox(self) -> int:
        return max(segment.layout.nbytes for segment in self._segments)

    def _make_seal(self) -> Seal:
        """Attach both regions, poison the outbox, and wait for the device."""
        _, outbox = self._worker.regions(self._kind, self._largest_inbox(), self._outbox.nbytes)
        outbox.poison(self._outbox.nbytes)
        seal = Seal(outbox, self._outbox.nbytes, start=self._unsealed_bytes)
        self._backend.synchronize()
        return seal

    def _release(self, segment: Segment) -> None:
        """Copy the segment's tensors into the inbox."""
        inbox = self._worker.region("inbox", self._kind, self._largest_inbox())
        copy_each([inbox.view(slot) for slot, _ in segment.values], [value for _, value in segment.values])

    def _result(
        self, evidence: p.Evidence, seal: Seal, *, interval_ms: float, waited_ms: float = 0.0, queued: bool = True
    ) -> JobResult:
        sealed, refused = exported(self._steps, evidence, self._exports, seal.view)
        results = dict(sealed)
        if self._deferred and evidence.failure is None:
            read = partial(_read_one, self._worker, self._device)
            deferred = Deferred(results, self._deferred, refused, read, READ_SECONDS)
            self._worker.read_results = partial(_read_rest, weakref.ref(deferred))
            return JobResult(evidence, deferred, refused, interval_ms, queued)
        return JobResult(evidence, results, refused, interval_ms, queued, waited_ms)


def _read_one(
    worker: WorkerClient, device: Device, source: str, spec: TensorSpec, convert: bool, seconds: float
) -> JobResult:
    job = SingleExport(worker, device)
    job.export({source: spec}, convert=convert)
    return job.run(seconds)


def _read_rest(deferred: Callable[[], Deferred | None]) -> None:
    alive = deferred()
    if alive is not None:
        alive.read_rest()


class SingleExport(JobBuilder):
    """Reads one deferred tensor of the previous job, whose results stay in the worker."""

    _keeps_order = False  # which would take its memory twice

    def __init__(self, worker: WorkerClient, device: Device) -> None:
        super().__init__(worker, device, at_once=True)

    def run(self, timeout_seconds: float) -> JobResult:
        """Run the job without touching the other deferred tensors. Raises WorkerLost."""
        rest, self._worker.read_results = self._worker.read_results, None
        try:
            return super().run(timeout_seconds)
        finally:
            self._worker.read_results = rest


def expandable_axis(shape: Sequence[int]) -> int | None:
    """The first dimension of extent over 1, along which an expanded grad_output is constant."""
    return next((axis for axis, extent in enumerate(shape) if extent > 1), None)
