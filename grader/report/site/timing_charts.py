"""The charts of speedups, samples and seconds, as SVG without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from db.against import Speedup
from db.rows import Row
from grader.report.site.formats import interval, power, times
from grader.report.site.svg import CHART_WIDTH, Scale, apart, chart, element, line, path, text
from grader.verdict.stages import FigureTiming, StageSeconds

LEFT = 84
"""Where a logarithmic chart begins, behind its labels, in pixels."""
_MOST_INTERVALS = 160
"""Whiskers; more could not be distinguished."""


def intervals_chart(rows: Sequence[tuple[Row, Speedup]], key: str) -> Markup:
    """One whisker per submission, sorted by lower end; large sets are thinned out evenly."""
    ordered = sorted(rows, key=lambda one: one[1].low)
    step = max(1, math.ceil(len(ordered) / _MOST_INTERVALS))
    shown = ordered[::-1][::step][::-1]
    y = log_scale([one for _, one in shown], 250, 16)
    x = Scale(0, max(len(shown), 1), LEFT, 700)
    parts = log_grid(y, 700)
    for position, (row, speedup) in enumerate(shown):
        place = x(position + 0.5)
        tone = "faster" if speedup.low > 1 else "slower" if speedup.high < 1 else "same"
        parts.append(
            element(
                "g",
                element(
                    "title", f"{row.problem}, {row.name}: {times(speedup.value)}, {interval(speedup.low, speedup.high)}"
                ),
                line(place, y(speedup.low), place, y(speedup.high), "whisker"),
                element("circle", cx=place, cy=y(speedup.value), r=3 if len(shown) > 60 else 4),
                class_=tone,
            )
        )
    parts.append(
        text(392, 280, "submissions, slowest to fastest" + (f"; one in {step} is shown" if step > 1 else ""), "axis")
    )
    faster = sum(one.low > 1 for _, one in rows)
    slower = sum(one.high < 1 for _, one in rows)
    return chart(
        *parts,
        title="Speedups over PyTorch with their 95% intervals",
        description=f"{len(rows)} timed: {faster} faster, {slower} slower, "
        f"{len(rows) - faster - slower} with 1 inside the interval",
        key=key,
        width=CHART_WIDTH,
        height=290,
    )


def phases_chart(phases: Sequence[tuple[str, FigureTiming]]) -> Markup:
    """One verdict's speedups with intervals, one line per phase."""
    speedups = [Speedup(one.speedup, one.ci_low, one.ci_high) for _, one in phases]
    bottom = 10 + 34 * len(phases)
    scale = log_scale(speedups, 110, 600)
    parts = [
        part
        for tick in _ticks(scale, 6)
        for part in (
            line(scale(tick), 8, scale(tick), bottom, "grid one" if tick == 1 else "grid"),
            text(scale(tick), bottom + 20, power(tick)),
        )
    ]
    for position, ((name, _), speedup) in enumerate(zip(phases, speedups, strict=True)):
        middle = 26 + 34 * position
        tone = "faster" if speedup.low > 1 else "slower" if speedup.high < 1 else "same"
        parts.append(text(100, middle + 5, name, "label", "end"))
        parts.append(
            element(
                "g",
                line(scale(speedup.low), middle, scale(speedup.high), middle, "whisker"),
                line(scale(speedup.low), middle - 6, scale(speedup.low), middle + 6, "whisker"),
                line(scale(speedup.high), middle - 6, scale(speedup.high), middle + 6, "whisker"),
                element("circle", cx=scale(speedup.value), cy=middle, r=5),
                class_=tone,
            )
        )
        parts.append(text(612, middle + 4, times(speedup.value), "value", "start"))
    return chart(
        *parts,
        title="Speedup over PyTorch, with 95% intervals",
        description="; ".join(
            f"{name}: {times(one.value)}, {interval(one.low, one.high)}"
            for (name, _), one in zip(phases, speedups, strict=True)
        ),
        key="phases",
        width=CHART_WIDTH,
        height=bottom + 28,
    )


def seconds_chart(seconds: StageSeconds) -> Markup:
    """The wall time of one grading: one bar, with a part per stage."""
    parts, spent = [], [(name, took) for name, took in seconds if took > 0]
    x = Scale(0, sum(took for _, took in spent) or 1.0, 0, 700)
    at = 0.0
    for position, (name, took) in enumerate(spent):
        width, label = x(at + took) - x(at), f"{name} {took:.1f} s"
        class_ = "stage even" if position % 2 else "stage"
        parts.append(element("rect", x=x(at), y=0, width=max(width - 1, 0.5), height=26, class_=class_))
        if width > 12 + 7 * len(label):
            parts.append(text(x(at) + 8, 17, label, "stage-label", "start"))
        at += took
    return chart(
        *parts,
        title="Wall time of each stage of this grading",
        description="; ".join(f"{name}: {took:.1f} s" for name, took in spent),
        key="seconds",
        width=CHART_WIDTH,
        height=30,
    )


def rounds_chart(phase: FigureTiming, name: str, key: str) -> Markup:
    """The time of each sample of candidate and reference, in the order of measurement."""
    candidate, reference = phase.candidate_samples_ms, phase.reference_samples_ms
    finite = [one for one in (*candidate, *reference) if math.isfinite(one)] or [0.0]
    y = Scale(0, max(finite) * 1.08 or 1.0, 170, 12)
    x = Scale(0, max(len(candidate), len(reference), 2) - 1, 76, 572)
    parts = [line(68, y(y.high * level / 2), 580, y(y.high * level / 2), "grid") for level in range(3)]
    parts += [text(62, y(y.high * level / 2) + 4, f"{y.high * level / 2:.3g}", anchor="end") for level in range(3)]
    parts.append(text(324, 198, "samples in the order of measurement; milliseconds", "axis"))
    parts += [
        path(
            ((x(at), y(one)) for at, one in enumerate(samples) if math.isfinite(one)),
            f"sample {label}",
            dots=True,
        )
        for label, samples in (("reference", reference), ("candidate", candidate))
    ]
    ends = [
        (y(samples[-1]), label) for label, samples in (("candidate", candidate), ("reference", reference)) if samples
    ]
    for position, (_, label) in zip(apart([height for height, _ in ends], 22), ends, strict=True):
        parts.append(text(586, position + 4, label, f"curve-label {label}", "start"))
    return chart(
        *parts,
        title=f"{name}: time of each sample",
        description=f"candidate {phase.candidate_ms:.4g} ms, reference {phase.reference_ms:.4g} ms (medians); "
        f"{len(candidate)} and {len(reference)} samples",
        key=key,
        width=CHART_WIDTH,
        height=208,
    )


def log_scale(speedups: Sequence[Speedup], start: float, end: float) -> Scale:
    """A scale between whole powers of two that contains all intervals and 1."""
    low = min([one.low for one in speedups if one.low > 0], default=1.0)
    high = max([one.high for one in speedups if one.high > 0], default=1.0)
    bottom, top = math.floor(math.log2(min(low, 0.9))), math.ceil(math.log2(max(high, 1.1)))
    return Scale(2.0**bottom, 2.0**top, start, end, logarithmic=True)


def _ticks(scale: Scale, most: int) -> list[float]:
    bottom, top = round(math.log2(scale.low)), round(math.log2(scale.high))
    every = max(1, math.ceil((top - bottom) / most))
    return [2.0**power for power in range(bottom, top + 1) if power % every == 0]


def log_grid(y: Scale, right: float) -> list[Markup]:
    """A line at each power of two, from `LEFT` to `right`, with its label."""
    parts: list[Markup] = []
    for tick in _ticks(y, 8):
        parts.append(line(LEFT, y(tick), right, y(tick), "grid one" if tick == 1 else "grid"))
        parts.append(text(LEFT - 8, y(tick) + 4, power(tick), anchor="end"))
    return parts
