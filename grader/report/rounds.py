"""The tables of `grader show --timing`: samples in order, the device's clocks, seconds per stage."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from rich.table import Table

from grader.report.console import one_line, plain_table
from grader.verdict.stages import ClockReading, FigureTiming, StageSeconds, TimingResult

_BARS = "▁▂▃▄▅▆▇█"
_FULL_BAR = 30


def samples_table(timing: TimingResult) -> Table | None:
    """A table of each phase's calls in order, two per round, and each round's ratio; None if empty."""
    table = plain_table("figure", "side", "least", "median", "most", "in order")
    for name in ("forward", "backward", "total"):
        phase: FigureTiming | None = getattr(timing, name)
        if phase is not None and phase.candidate_samples_ms:
            _add(table, name, "reference ms", phase.reference_samples_ms)
            _add(table, "", "candidate ms", phase.candidate_samples_ms)
            _add(table, "", "ratio", list(ratios(phase)))
    return table if table.row_count else None


def ratios(phase: FigureTiming) -> Iterator[float]:
    """reference / candidate per round, from the geometric means of its two calls."""
    for first in range(0, len(phase.candidate_samples_ms) - 1, 2):
        reference, candidate = (
            math.sqrt(samples[first] * samples[first + 1])
            for samples in (phase.reference_samples_ms, phase.candidate_samples_ms)
        )
        yield reference / candidate


def clocks_table(readings: Sequence[ClockReading]) -> Table | None:
    """The clocks of each round; None without readings."""
    table = plain_table("round", "SM MHz", "memory MHz", "slowed by")
    for reading in readings:
        reasons = one_line(", ".join(reading.throttle_reasons))
        table.add_row(str(reading.round), str(reading.sm_mhz), str(reading.memory_mhz), reasons)
    return table if readings else None


def seconds_table(seconds: StageSeconds) -> Table | None:
    """Wall time of each stage; None if nothing was measured."""
    spent = seconds.model_dump()
    whole = sum(spent.values())
    table = plain_table("stage", "seconds", "share", "")
    for name, took in spent.items():
        share = took / whole if whole else 0.0
        table.add_row(name, f"{took:.2f}", f"{share:.0%}", "█" * round(_FULL_BAR * share))
    return table if whole else None


def sparkline(values: Sequence[float]) -> str:
    """One character per value, scaled from the smallest to the largest."""
    low, high = min(values), max(values)
    steps = len(_BARS) - 1
    return "".join(_BARS[round(steps * (value - low) / (high - low)) if high > low else 0] for value in values)


def _add(table: Table, figure: str, side: str, values: Sequence[float]) -> None:
    least, middle, most = min(values), statistics.median(values), max(values)
    table.add_row(figure, side, f"{least:.5g}", f"{middle:.5g}", f"{most:.5g}", sparkline(values))
