"""Composes one job: tensors to send, steps to carry out, tensors to bring back sealed.

    script = Script(worker, Device.CPU)
    script.put_inputs("a", case.inputs, requires_grad=True)
    script.forward("model", "a", tape="a", grad=True)
    script.export({"output:a:output": TensorSpec((8, 4), torch.float32)})
    finding = script.run(timeout_seconds=60)

Sealing: the outbox is poisoned before the job is sent, and copied to private memory at the moment the answer arrives.
Work that a worker finishes later is not seen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from grader import protocol as p
from grader.models import Device
from grader.remote.memory import Layout
from grader.remote.worker import RemoteWorker

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
class Finding:
    """One job's evidence, with the tensors that came back."""

    evidence: p.Evidence
    sealed: Mapping[str, torch.Tensor]
    """Private copies by export source; a source that the worker refused is missing."""
    refused: Mapping[str, p.TensorInfo]
    """What the worker has in place of a source that it could not export."""
    bracket_ms: float
    """From sending the job to holding the answer, by the referee's clock."""

    @property
    def failure(self) -> p.Failure | None:
        return self.evidence.failure

    def of(self, kind: type[Any]) -> list[Any]:
        """The results of one kind, in order."""
        return [result for result in self.evidence.results if isinstance(result, kind)]


class Script:
    """A job in the making. Tensors are copied into the inbox when it runs."""

    def __init__(self, worker: RemoteWorker, device: Device, *, results_on_host: bool = False) -> None:
        """`results_on_host`: what comes back goes through host memory whatever the device."""
        self._worker = worker
        self._inbox_kind: Literal["host", "cuda"] = "cuda" if device is Device.CUDA else "host"
        self._outbox_kind: Literal["host", "cuda"] = "host" if results_on_host else self._inbox_kind
        self._steps: list[p.Step] = []
        self._sent = Layout()
        self._back = Layout()
        self._values: list[tuple[p.Slot, torch.Tensor]] = []
        self._placed: dict[int, p.Slot] = {}
        self._exports: dict[str, p.Slot] = {}

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

    def export(self, wanted: Mapping[str, TensorSpec]) -> None:
        slots = {source: self._back.place(spec.dtype, spec.shape) for source, spec in wanted.items()}
        self._exports.update(slots)
        self._steps.append(p.Export(items=slots))

    def place(self, value: torch.Tensor) -> p.Slot:
        """A slot for this tensor in the inbox; the same tensor is sent once."""
        if id(value) not in self._placed:
            slot = self._placed[id(value)] = self._sent.place(value.dtype, value.shape)
            self._values.append((slot, value))
        return self._placed[id(value)]

    def run(self, timeout_seconds: float) -> Finding:
        """Raises WorkerLost."""
        inbox = self._worker.region("inbox", self._inbox_kind, self._sent.nbytes)
        outbox = self._worker.region("outbox", self._outbox_kind, self._back.nbytes)
        for slot, value in self._values:
            inbox.view(slot).copy_(value)
        outbox.poison(self._back.nbytes)
        if self._inbox_kind == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        evidence = self._worker.run(self._steps, timeout_seconds)
        bracket_ms = (time.perf_counter() - started) * 1e3
        refused = {
            info.name: info for result in evidence.results if isinstance(result, p.Exported) for info in result.refused
        }
        exported = any(isinstance(result, p.Exported) for result in evidence.results)
        sealed = {
            source: outbox.view(slot).clone()
            for source, slot in self._exports.items()
            if exported and source not in refused
        }
        return Finding(evidence=evidence, sealed=sealed, refused=refused, bracket_ms=bracket_ms)


def expandable_axis(shape: Sequence[int]) -> int | None:
    """The first dimension of extent over 1, along which an expanded grad_output is constant."""
    return next((axis for axis, extent in enumerate(shape) if extent > 1), None)
