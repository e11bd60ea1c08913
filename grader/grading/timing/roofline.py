"""The speed of light: below which time no implementation on this device can be believed.

The largest of three times: matrix products and convolutions at the best rate that was measured, pointwise operations
likewise, and memory that has to be read and written once at the best bandwidth. Each errs downwards where the device
could do better than it was measured:

- float32 products may be split into TensorFloat-32 ones, three for one, without losing accuracy;
- Winograd's F(4x4, 3x3) convolves with a quarter of the multiplications (Lavin and Gray, 2016);
- what is written may still be in the last-level cache when the clock stops; on the CPU, what is read may be there when
  it starts. On the GPU it is flushed.

A bound that the reference itself beats is none, and is not given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from grader import protocol as p
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.timing import workload
from grader.verdict.models import Device, Diagnosis, PhaseTiming, TimingResult

SPLIT_PRODUCTS = 3
"""TensorFloat-32 products that make one of nearly float32 precision."""
WINOGRAD = 4
"""Convolutions may need this many times fewer operations than the direct sum."""
BEYOND_REVIEW = 1.10
"""Of the speed of light: no error of the bound explains it."""
_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "": 1}


@dataclass(frozen=True)
class Peaks:
    """Of one device, operations and bytes per second."""

    float32: float
    tf32: float
    bytes: float
    cache_bytes: int | None
    """Of the last-level cache; None where nobody says."""


class SpeedOfLight:
    """Peaks by device, measured by the reference's worker when they are first asked for, and kept."""

    def __init__(self) -> None:
        self._peaks: dict[Device, Peaks] = {}

    def bounds(self, oracle: Oracle, work: p.Counted, timing: TimingResult, *, tf32: bool) -> TimingResult:
        """The timing with the bounds of its phases, where they can be told."""
        device = oracle.device
        peaks = self._peaks.get(device) or self._measure(oracle)
        found = _with_bounds(timing, work, peaks, device, tf32)
        if any(share(phase) > 1 for phase in _phases(found)):  # ask twice before anybody is suspected
            found = _with_bounds(timing, work, self._measure(oracle), device, tf32)
        return found

    def _measure(self, oracle: Oracle) -> Peaks:
        measured, before = workload.gauge(oracle), self._peaks.get(oracle.device)
        best = Peaks(measured.float32, measured.tf32, measured.bytes, cache_bytes(oracle.device))
        if before is not None:
            better = {name: max(getattr(best, name), getattr(before, name)) for name in ("float32", "tf32", "bytes")}
            best = replace(best, **better)
        self._peaks[oracle.device] = best
        return best


def bound_ms(parts: Sequence[p.Work], peaks: Peaks, device: Device, *, tf32: bool) -> float:
    """Least time of some passes one after another, in milliseconds; `tf32` as the timed convolutions have it."""
    full = max(peaks.float32, peaks.tf32 / SPLIT_PRODUCTS)
    convolving = max(full, peaks.tf32) if tf32 else full
    products = sum(work.matmul / full + work.convolution / WINOGRAD / convolving for work in parts)
    pointwise = sum(work.pointwise for work in parts) / peaks.float32
    moved = sum(_uncached_bytes(work, peaks, device) for work in parts) / peaks.bytes
    return 1e3 * max(products, pointwise, moved)


def share(phase: PhaseTiming) -> float:
    """Of the speed of light that the candidate reaches; 0 without a bound."""
    return 0.0 if phase.bound_ms is None else phase.bound_ms / max(phase.candidate_ms, 1e-9)


def too_fast(timing: TimingResult) -> tuple[Diagnosis, ...]:
    """At most one, about the phase that is furthest above."""
    phases = {name: getattr(timing, name) for name in ("forward", "backward", "total") if getattr(timing, name)}
    if not phases:
        return ()
    name, phase = max(phases.items(), key=lambda item: share(item[1]))
    reached = share(phase)
    if reached <= 1:
        return ()
    beyond = ", and more than 110%, which no error of the bound explains" if reached > BEYOND_REVIEW else ""
    message = (
        f"the {name} takes {phase.candidate_ms:.3g} ms where this device needs at least {phase.bound_ms:.3g} ms for "
        f"the operations and the memory of the reference: {reached:.0%} of the speed of light{beyond}; read "
        "what its source leaves out"
    )
    return (diagnose("above_speed_of_light", message, severity="warning"),)


def cache_bytes(device: Device) -> int | None:
    """Of the last-level cache, as the driver or the kernel says."""
    if device is Device.CUDA:
        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    sizes = []
    for path in _CPU_CACHES.glob("index*/size"):
        found = re.fullmatch(r"(\d+)([KM]?)", path.read_text().strip())
        if found:
            sizes.append(int(found[1]) * _UNITS[found[2]])
    return max(sizes, default=None)


def _with_bounds(timing: TimingResult, work: p.Counted, peaks: Peaks, device: Device, tf32: bool) -> TimingResult:
    parts = {"forward": [work.forward]}
    if work.backward is not None:
        parts |= {"backward": [work.backward], "total": [work.forward, work.backward]}
    changed = {}
    for name, of in parts.items():
        phase: PhaseTiming | None = getattr(timing, name)
        if phase is not None:
            bound = bound_ms(of, peaks, device, tf32=tf32)
            given = bound if 0 < bound <= phase.reference_ms else None
            changed[name] = phase.model_copy(update={"bound_ms": given})
    return timing.model_copy(update=changed)


def _uncached_bytes(work: p.Work, peaks: Peaks, device: Device) -> int:
    if peaks.cache_bytes is None:
        return 0
    if device is Device.CUDA:
        return work.read_bytes + max(0, work.written_bytes - peaks.cache_bytes)
    return max(0, work.read_bytes + work.written_bytes - peaks.cache_bytes)


def _phases(timing: TimingResult) -> list[PhaseTiming]:
    return [phase for phase in (timing.forward, timing.backward, timing.total) if phase is not None]
