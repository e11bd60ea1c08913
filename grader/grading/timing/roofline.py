"""The roofline bound (speed of light): a time that no implementation on a device can plausibly beat.

It is the largest of three times: matrix products and convolutions at the best measured rate, pointwise operations
likewise, and the memory that has to be read and written once at the best bandwidth. Each errs low where the device
could do better than measured:

- float32 products may be split into three TensorFloat-32 ones without losing accuracy;
- Winograd's F(4x4, 3x3) convolves with a quarter of the multiplications (Lavin and Gray, 2016);
- what is written may still be in the last-level cache when the clock stops. On the CPU, what is read may be there when
  it starts; on the GPU the cache is flushed.

A bound that the reference itself beats is wrong and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from pydantic import TypeAdapter

from grader import protocol as p
from grader.grading.compare.narrow_types import is_narrow
from grader.grading.kept_files import KeptValues
from grader.grading.messages import diagnose
from grader.grading.oracle import capabilities
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.remembered import remembered
from grader.machine.backends import backend
from grader.verdict.models import Device, Diagnosis, Environment
from grader.verdict.stages import FigureTiming, TimingResult

SPLIT_PRODUCTS = 3
"""TensorFloat-32 products that make up one of nearly float32 precision."""
FORMAT = "1"
"""Raised when what is measured changes, so that older stored peaks are not used."""
WINOGRAD = 4
"""Times fewer operations that a convolution may need than the direct sum: F(4x4, 3x3)."""


@dataclass(frozen=True)
class Peaks:
    """Peak rates of one device, in operations and bytes per second."""

    float32: float
    tf32: float
    bytes: float
    cache_bytes: int | None
    """Size of the last-level cache; None if unknown."""
    narrow: float | None = None
    """Operations per second in products of the narrowest type among the operands, if that has 16 bits or less."""

    @property
    def pointwise(self) -> float:
        """Operations per second on single elements; two of 16 bits may be packed into one of float32."""
        return self.float32 * 2 if self.narrow else self.float32


class Roofline:
    """Peaks by device, measured by the reference's worker when they are first needed, and stored.

    What is stored may be too low, as by a machine that was busy: where a candidate is above the roofline by it, or the
    reference, peaks are measured again.
    """

    def __init__(self, folder: Path, environment_of: Callable[[Device], Environment]) -> None:
        """Peaks are stored in `folder`, for each environment and narrow type in a read-only JSON file."""
        self._kept, self._environment_of = KeptValues(folder, "peaks", TypeAdapter(Peaks)), environment_of
        self._peaks: dict[tuple[Device, torch.dtype | None], Peaks] = {}
        self._measured: set[tuple[Device, torch.dtype | None]] = set()
        """Those that this process has measured."""

    def bounds(
        self,
        oracle: Oracle,
        work: p.Counted,
        timing: TimingResult,
        *,
        tf32: bool,
        narrow: torch.dtype | None = None,
    ) -> TimingResult:
        """The timing with the bounds of its phases, where there are any.

        `narrow` is as of `narrow_operands`.
        """
        bound = partial(bound_ms, device=oracle.device, tf32=tf32, everywhere=oracle.precision.meaning.tf32)
        bounded = _with_bounds(timing, work, partial(bound, peaks=self.peaks(oracle, narrow)))
        left_out = any(phase.bound_ms is None for phase in _phases(bounded))
        suspected = any(share(phase) > 1 for phase in _phases(bounded))
        if suspected or (left_out and (oracle.device, narrow) not in self._measured):
            bounded = _with_bounds(timing, work, partial(bound, peaks=self._measure(oracle, narrow)))
        return bounded

    def peaks(self, oracle: Oracle, narrow: torch.dtype | None) -> Peaks:
        """The peaks of the reference's device: those of this process, else the stored ones, else measured now."""
        key = oracle.device, narrow
        if key not in self._peaks and (stored := self._kept.get(self._name(*key))) is not None:
            self._peaks[key] = stored
        return self._peaks.get(key) or self._measure(oracle, narrow)

    def _name(self, device: Device, narrow: torch.dtype | None) -> str:
        return f"{FORMAT} {narrow} {self._environment_of(device).environment_hash}"

    def _measure(self, oracle: Oracle, narrow: torch.dtype | None) -> Peaks:
        before = self._peaks.get((oracle.device, narrow))
        names: dict[torch.dtype | None, Literal["bfloat16", "float16"]] = {torch.float16: "float16"}
        name = None if narrow is None else names.get(narrow, "bfloat16")
        oracle.release()
        measured = oracle.process.step(p.Gauge(device=backend(oracle.device).torch_device, narrow=name))
        assert isinstance(measured, p.Gauged)
        # With operands of half the size, a tensor core has twice the rate.
        rate = measured.narrow and measured.narrow * 2 / (narrow.itemsize if narrow else 2)
        best = Peaks(measured.float32, measured.tf32, measured.bytes, backend(oracle.device).cache_bytes(), rate)
        if before is not None:
            names_of = ("float32", "tf32", "bytes", *(("narrow",) if rate else ()))
            best = replace(best, **{name: max(getattr(best, name), getattr(before, name)) for name in names_of})
        self._peaks[oracle.device, narrow] = best
        self._measured.add((oracle.device, narrow))
        self._kept.keep(self._name(oracle.device, narrow), best)
        return best


@remembered
def counted_work(oracle: Oracle, case: Case) -> p.Counted:
    """Operations and mandatory memory of one forward and, where the case has cotangents, one backward."""
    job = capabilities.script(oracle, case)
    job.put_inputs("a", case.inputs, requires_grad=bool(case.wrt))
    job.step(
        p.Count(
            model=MODEL,
            inputs="a",
            cotangents=job.cotangents(case.cotangents) if case.wrt else {},
            wrt=case.wrt,
            training=case.training,
            clone_inputs=case.clone_inputs,
        )
    )
    job.step(p.Drop())
    counted: p.Counted = oracle.process.run(job).of(p.Counted)[0]
    return counted


def narrow_operands(case: Case) -> torch.dtype | None:
    """The narrowest floating type among inputs, parameters and outputs, if it has 16 bits or less."""
    tensors = [value for value in (*case.inputs, *case.state.values()) if isinstance(value, torch.Tensor)]
    dtypes = [value.dtype for value in tensors] + [expected.dtype for expected in case.outputs.values()]
    return min((dtype for dtype in dtypes if is_narrow(dtype)), key=lambda dtype: dtype.itemsize, default=None)


def bound_ms(parts: Sequence[p.Work], peaks: Peaks, device: Device, *, tf32: bool, everywhere: bool = False) -> float:
    """Least milliseconds of some passes one after another; `tf32` as the convolutions were timed.

    `everywhere` allows TensorFloat-32 in matrix products too.
    """
    full = max(peaks.float32, peaks.tf32 / SPLIT_PRODUCTS)
    if everywhere or peaks.narrow:
        full = max(full, peaks.tf32, peaks.narrow or 0.0)
    convolving = max(full, peaks.tf32) if tf32 else full
    products = sum(work.matmul / full + work.convolution / WINOGRAD / convolving for work in parts)
    pointwise = sum(work.pointwise for work in parts) / peaks.pointwise
    moved = sum(_uncached_bytes(work, peaks, device) for work in parts) / peaks.bytes
    return 1e3 * max(products, pointwise, moved)


def share(phase: FigureTiming) -> float:
    """Share of the roofline that the candidate reaches; 0 without a bound."""
    return 0.0 if phase.bound_ms is None else phase.bound_ms / max(phase.candidate_ms, 1e-9)


def above_roofline(timing: TimingResult) -> tuple[Diagnosis, ...]:
    """A warning about the phase that is furthest above the roofline, if there is one.

    The backward alone is none: a forward that makes the gradients while what they need exists leaves it little to do.
    """
    phases = {name: getattr(timing, name) for name in ("forward", "total") if getattr(timing, name)}
    if not phases:
        return ()
    name, phase = max(phases.items(), key=lambda item: share(item[1]))
    reached = share(phase)
    if reached <= 1:
        return ()
    return (
        diagnose(
            "above_roofline_bound",
            f"the {name} takes less time than this device needs for the reference's operations and memory",
            amount=f"{phase.candidate_ms:.3g} ms where at least {phase.bound_ms:.3g} ms are needed, "
            f"{reached:.0%} of the roofline",
            remedy="read what its source leaves out; above 110% it is not ranked",
            severity="warning",
        ),
    )


def _with_bounds(timing: TimingResult, work: p.Counted, bound_of: Callable[[Sequence[p.Work]], float]) -> TimingResult:
    parts = {"forward": [work.forward]}
    if work.backward is not None:
        parts |= {"backward": [work.backward], "total": [work.forward, work.backward]}
    changed = {}
    for name, passes in parts.items():
        phase: FigureTiming | None = getattr(timing, name)
        if phase is not None:
            bound = bound_of(passes)
            given = bound if 0 < bound <= phase.reference_ms else None
            changed[name] = phase.model_copy(update={"bound_ms": given})
    return timing.model_copy(update=changed)


def _uncached_bytes(work: p.Work, peaks: Peaks, device: Device) -> int:
    if peaks.cache_bytes is None:
        return 0
    if backend(device).own_memory:
        return work.read_bytes + max(0, work.written_bytes - peaks.cache_bytes)
    return max(0, work.read_bytes + work.written_bytes - peaks.cache_bytes)


def _phases(timing: TimingResult) -> list[FigureTiming]:
    return [phase for phase in (timing.forward, timing.backward, timing.total) if phase is not None]
