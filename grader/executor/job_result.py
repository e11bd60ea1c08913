"""The result of one job: its evidence and sealed tensors; large ones are read when needed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from grader import protocol as p
from grader.executor.worker_process import WorkerLost
from grader.protocol.regions import in_row_major_order


class TensorSpec(NamedTuple):
    """Shape and dtype that a sealed tensor must have."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Size in bytes of a dense tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    @staticmethod
    def like(value: torch.Tensor) -> TensorSpec:
        """Return the spec of a tensor like this one."""
        return TensorSpec(tuple(value.shape), value.dtype)

    @staticmethod
    def of(info: p.TensorInfo) -> TensorSpec:
        """Return the spec of a tensor that a worker described."""
        assert info.shape is not None
        assert info.dtype is not None
        return TensorSpec(info.shape, getattr(torch, info.dtype))


@dataclass(frozen=True)
class JobResult:
    """The evidence of one job, with the tensors that came back."""

    evidence: p.Evidence
    sealed: Mapping[str, torch.Tensor]
    """Private copies by export source, without the sources that the worker refused."""
    refused: Mapping[str, p.TensorInfo]
    """What the worker has instead of a source that it could not export."""
    interval_ms: float
    """From the first input's release to the last output's seal, by the referee's clock."""
    queued: bool = True
    """The worker had queued all its work before the inputs were released (gpu_timeline.py)."""
    waited_ms: float = 0.0
    """How long the worker's threads, added up, waited for a core meanwhile; only of a timed job on a CPU."""

    @property
    def failure(self) -> p.Failure | None:
        """The exception of the job's last step, if it failed."""
        return self.evidence.failure

    def take(self, source: str) -> torch.Tensor | None:
        """Return the sealed tensor, and forget a large one; None for a source that the worker refused."""
        if isinstance(self.sealed, Deferred):
            return self.sealed.take(source)
        return self.sealed.get(source)

    def lost_as(self, error_for: Callable[[WorkerLost], Exception]) -> None:
        """Set the error to raise if the worker is lost while a deferred tensor is read."""
        if isinstance(self.sealed, Deferred):
            self.sealed.error_for = error_for

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the results of one class in order; without a failure, one for each step that it answers."""
        return [result for result in self.evidence.results if isinstance(result, kind)]


class Deferred(Mapping[str, torch.Tensor]):
    """Sealed tensors of one job; large ones are copied out of the worker when they are first read.

    The remaining ones are read when the worker gets its next job, unless this object has been freed.
    """

    def __init__(
        self,
        sealed: dict[str, torch.Tensor],
        later: Mapping[str, tuple[TensorSpec, bool]],
        refused: dict[str, p.TensorInfo],
        read: Callable[[str, TensorSpec, bool, float], JobResult],
        seconds: float,
    ) -> None:
        """`read` copies one tensor out of the worker, given its source, its spec, whether it is widened, and a limit.

        All of them together have `seconds`.
        """
        self._sealed, self._later, self._refused = sealed, dict(later), refused
        self._read_one, self._seconds_left = read, seconds
        self.error_for: Callable[[WorkerLost], Exception] = lambda lost: lost

    def take(self, source: str) -> torch.Tensor | None:
        """Return the tensor and forget it; None if the worker refused it."""
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
        """Read all remaining tensors."""
        for source in list(self._later):
            self.get(source)

    def _read(self, source: str, spec: TensorSpec, convert: bool) -> None:
        started = time.monotonic()
        try:
            result = self._read_one(source, spec, convert, self._seconds_left)
        except WorkerLost as lost:
            raise self.error_for(lost) from lost
        self._seconds_left -= time.monotonic() - started
        self._refused.update(result.refused)
        self._sealed.update(result.sealed)


def exported(
    steps: Sequence[p.Step], evidence: p.Evidence, slots: Mapping[str, p.Slot], view: Callable[[p.Slot], torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, p.TensorInfo]]:
    """(the tensors of these slots that were exported, in row-major order; what was refused), by source."""
    pairs = [
        (step, result)
        for step, result in zip(steps, evidence.results, strict=False)
        if isinstance(step, p.Export) and isinstance(result, p.Exported)
    ]
    refused = {info.name: info for _, result in pairs for info in result.refused}
    orders = {source: order for _, result in pairs for source, order in result.orders.items()}
    there = {source for step, _ in pairs for source in step.items}
    sealed = {
        source: in_row_major_order(view(slot), orders[source]) if source in orders else view(slot)
        for source, slot in slots.items()
        if source in there and source not in refused
    }
    return sealed, refused


def joined(first: p.Evidence, second: p.Evidence) -> p.Evidence:
    """Join the evidence of two segments of one job."""
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
