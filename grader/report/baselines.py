"""The reference's times by each way to run it, and the submission's speedup over each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from grader.verdict.stages import FigureTiming, TimingResult


class BaselineLine(NamedTuple):
    """Times of one way to run the reference, and the candidate's speedups over it."""

    name: str
    forward_ms: float | None
    forward: float | None
    """Speedup of the candidate's forward over it."""
    total_ms: float | None
    total: float | None
    best: set[str]
    """The phases (`forward`, `total`) in which this baseline is the fastest."""


def baseline_lines(timing: TimingResult) -> Iterator[BaselineLine]:
    """Yields eager, then the other baselines.

    Eager's times are those of the baselines' run; where it has none, this verdict's own.
    """
    timed = {one.name: (one.forward_ms, one.total_ms) for one in timing.baselines}
    forward, total = timing.forward, timing.total
    own = forward.reference_ms if forward else None, total.reference_ms if total else None
    known = {"eager": timed.get("eager", own), **timed}
    least_forward, least_total = _least(ms for ms, _ in known.values()), _least(ms for _, ms in known.values())
    for name, (forward_ms, total_ms) in known.items():
        compared = (("forward", forward_ms, least_forward), ("total", total_ms, least_total))
        yield BaselineLine(
            name=name.replace("_", " "),
            forward_ms=forward_ms,
            forward=_over(forward_ms, forward, known["eager"][0]),
            total_ms=total_ms,
            total=_over(total_ms, total, known["eager"][1]),
            best={phase for phase, ms, least in compared if ms is not None and ms == least},
        )


def _least(times: Iterable[float | None]) -> float | None:
    return min((ms for ms in times if ms is not None), default=None)


def _over(baseline_ms: float | None, phase: FigureTiming | None, eager_ms: float | None) -> float | None:
    """The speedup over eager PyTorch times baseline / eager, as boards have it."""
    return phase.speedup * baseline_ms / eager_ms if baseline_ms and phase and eager_ms else None
