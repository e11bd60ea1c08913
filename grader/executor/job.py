"""Composes one job: tensors to send, steps to carry out, tensors to bring back sealed.

    script = JobBuilder(worker, Device.CPU)
    script.put_inputs("a", case.inputs, requires_grad=True)
    script.forward("model", "a", tape="a", grad=True)
    script.export({"output:a:output": TensorSpec((8, 4), torch.float32)})
    finding = script.run(timeout_seconds=60)

Sealing: the outbox is poisoned before the job is sent, and copied to private memory when the first byte of the answer
arrives. Work that a worker finishes later is not seen.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from grader import protocol as p
from grader.executor.client import WorkerClient
from grader.executor.shared_memory import Layout, Region, typed
from grader.verdict.models import Device

SEAL_BLOCK_BYTES = 64 << 10
SEAL_BLOCKS = 32
_SHUFFLE = random.SystemRandom()

GENEROUS_BYTES = 3 << 28
"""From this size on, the referee keeps no device memory in reserve while a worker computes what is not timed."""
CotangentLayout = Literal["contiguous", "expanded", "transposed", "sliced"]


class TensorSpec(NamedTuple):
    """What a sealed tensor must be."""

    shape: tuple[int, ...]
    dtype: torch.dtype

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

    def of(self, kind: type[Any]) -> list[Any]:
        """The results of one kind, in order: one for each step of theirs where no step raised."""
        return [result for result in self.evidence.results if isinstance(result, kind)]


class JobBuilder:
    """A job in the making. Tensors are copied into the inbox when it runs."""

    _queues = False
    """The worker does not wait for what it exports."""

    def __init__(self, worker: WorkerClient, device: Device) -> None:
        self._worker = worker
        self._kind: Literal["host", "cuda"] = "cuda" if device is Device.CUDA else "host"
        self._steps: list[p.Step] = []
        self._sent = Layout()
        self._back = Layout()
        self._values: list[tuple[p.Slot, torch.Tensor]] = []
        self._placed: dict[int, p.Slot] = {}
        self._exports: dict[str, p.Slot] = {}

    @property
    def length(self) -> int:
        """Steps so far."""
        return len(self._steps)

    def step(self, step: p.Step) -> None:
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
            slots = {name: self.place(value) for name, value in values.items()}
            self._steps.append(p.SetState(model=model, values=slots))

    def cotangents(
        self, values: Mapping[str, torch.Tensor], layout: CotangentLayout = "contiguous"
    ) -> dict[str, p.Cotangent]:
        """grad_outputs by output name, for a `Backward` or `TimedCall`.

        For `expanded` the values must be constant along the first dimension of extent over 1, which is then sent once.
        """
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
        slots = {source: self._back.place(spec.dtype, spec.shape) for source, spec in wanted.items()}
        self._exports.update(slots)
        self._steps.append(p.Export(items=slots, queued=self._queues, widen=widen))

    def place(self, value: torch.Tensor) -> p.Slot:
        """A slot for this tensor in the inbox; the same tensor is sent once."""
        if id(value) not in self._placed:
            slot = self._placed[id(value)] = self._sent.place(value.dtype, value.shape)
            self._values.append((slot, value))
        return self._placed[id(value)]

    def run(self, timeout_seconds: float) -> JobResult:
        """Raises WorkerLost."""
        seal = self._make_seal()
        if self._kind == "cuda" and self._sent.nbytes + self._back.nbytes > GENEROUS_BYTES:
            torch.cuda.empty_cache()
        # From here on the worker could see values that it is to compute with: the clock runs.
        started = time.perf_counter()
        self._release()
        if self._kind == "cuda":
            torch.cuda.synchronize()
        evidence = self._worker.run(self._steps, timeout_seconds, at_answer=seal.take)
        return self._found(evidence, seal, bracket_ms=(seal.taken_at - started) * 1e3)

    def _make_seal(self) -> Seal:
        """Both regions attached, the outbox poisoned, the device idle."""
        self._worker.region("inbox", self._kind, self._sent.nbytes)
        outbox = self._worker.region("outbox", self._kind, self._back.nbytes)
        outbox.poison(self._back.nbytes)
        seal = Seal(outbox, self._back.nbytes)
        if self._kind == "cuda":
            torch.cuda.synchronize()
        return seal

    def _release(self) -> None:
        """Copy what is sent into the inbox."""
        inbox = self._worker.region("inbox", self._kind, self._sent.nbytes)
        for slot, value in self._values:
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
        return JobResult(evidence=evidence, sealed=sealed, refused=refused, bracket_ms=bracket_ms, queued=queued)


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
