"""The charts, drawn as SVG without any script. Each page puts the same figures beside them as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from db.rows import Row, Speedup
from grader.report.site.figures import FAST_P_MARKS, FAST_P_STEPS, FastP, Funnel, Light
from grader.report.site.formats import interval, percent, power, times
from grader.report.site.svg import Scale, chart, element, line, path, text
from grader.verdict.models import PhaseTiming, StageSeconds

_WIDTH = 720
_MOST_INTERVALS = 160
"""More than this would be a grey area."""

_MOST_BARS = 24
"""Pairs of bars; the table beside them has the rest."""

_LONGEST_NAME = 44
"""Characters that fit beside a bar."""


def funnel_chart(funnel: Funnel, key: str) -> Markup:
    """Three bars on one scale; what has a right forward and no backward is set apart."""
    x = Scale(0, 1, 150, 640)
    parts = []
    steps = (("Builds", funnel.built), ("Forward matches", funnel.forward), ("Backward matches", funnel.backward))
    for position, (name, count) in enumerate(steps):
        top = 10 + 46 * position
        share = funnel.share(count)
        parts += [
            text(138, top + 21, name, "label", "end"),
            element("rect", x=x(0), y=top, width=490, height=32, class_="track"),
            element("rect", x=x(0), y=top, width=x(share) - x(0), height=32, class_="bar"),
            text(652, top + 21, percent(share), "value", "start"),
        ]
    parts += _missing_backward(funnel, x)
    return chart(
        *parts,
        title="What share gets past each question",
        description="; ".join(f"{name}: {percent(funnel.share(count))} ({count})" for name, count in steps)
        + f"; forward matches but backward is missing: {percent(funnel.share(funnel.missing_backward))}",
        key=key,
        width=_WIDTH,
        height=152,
    )


def _missing_backward(funnel: Funnel, x: Scale) -> list[Markup]:
    """The part of the third bar that a missing backward takes away."""
    missing = funnel.share(funnel.missing_backward)
    if not missing:
        return []
    start = x(funnel.share(funnel.backward))
    width = x(missing) - x(0)
    parts = [element("rect", x=start, y=102, width=width, height=32, class_="missing")]
    label = f"{percent(missing)} missing"
    if start + width < 530:
        parts.append(text(start + width + 8, 122, label, "missing-label", "start"))
    elif width > 110:
        parts.append(element("rect", x=start + 8, y=108, width=96, height=20, class_="plate"))
        parts.append(text(start + 56, 122, label, "missing-label"))
    return parts


def fast_p_chart(figures: FastP, key: str) -> Markup:
    """Both curves, a line at each usual p, and one at p = 1 that the slider moves."""
    x, y = Scale(0, FAST_P_STEPS[-1], 48, 640), Scale(0, 1, 250, 16)
    parts = [line(48, y(level / 4), 640, y(level / 4), "grid") for level in range(5)]
    parts += [text(40, y(level / 4) + 4, percent(level / 4), anchor="end") for level in range(5)]
    parts += [line(x(mark), 16, x(mark), 250, "grid mark") for mark in FAST_P_MARKS]
    parts += [text(x(mark), 268, f"{mark:g}") for mark in (*FAST_P_MARKS, FAST_P_STEPS[-1])]
    parts.append(text(344, 288, "p: how many times as fast as PyTorch", "axis"))
    ends = []
    for name, counts, speedups in (
        ("forward", figures.forward, figures.forward_speedups),
        ("total", figures.total, figures.total_speedups),
    ):
        parts.append(path(_steps(counts[0], speedups, figures.count, x, y), f"curve {name}"))
        ends.append((y(counts[-1] / max(figures.count, 1)), name))
    for position, (_, name) in zip(_apart([height for height, _ in ends], 15), ends, strict=True):
        parts.append(text(648, position + 4, name, f"curve-label {name}", "start"))
    total, forward = figures.at(1.0)
    parts += [
        line(x(1), 16, x(1), 250, "cursor"),
        element("circle", cx=x(1), cy=y(forward), r=5, class_="dot forward"),
        element("circle", cx=x(1), cy=y(total), r=5, class_="dot total"),
    ]
    return chart(
        *parts,
        title="fast_p: the share that is right and more than p times as fast as PyTorch",
        description="; ".join(
            f"p = {mark:g}: {percent(figures.at(mark)[0])} forward and backward, {percent(figures.at(mark)[1])} forward"
            for mark in FAST_P_MARKS
        ),
        key=key,
        width=_WIDTH,
        height=296,
    )


def _steps(right: int, speedups: Sequence[float], count: int, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """Down by one at each speedup. Of steps that fall on one pixel the last is drawn."""
    count = max(count, 1)
    points = [(x(0), y(right / count)), (x(0), y(len(speedups) / count))]
    for position, speedup in enumerate(speedups, start=1):
        if speedup > FAST_P_STEPS[-1]:
            break
        place = round(x(speedup), 1)
        if place == points[-1][0] and len(points) > 3:
            points.pop()
        else:
            points.append((place, points[-1][1]))
        points.append((place, y((len(speedups) - position) / count)))
    return [*points, (x(FAST_P_STEPS[-1]), points[-1][1])]


def intervals_chart(rows: Sequence[tuple[Row, Speedup]], key: str) -> Markup:
    """One whisker a submission, from the slowest to the fastest lower end; large sets are thinned out evenly."""
    ordered = sorted(rows, key=lambda one: one[1].low)
    step = max(1, math.ceil(len(ordered) / _MOST_INTERVALS))
    shown = ordered[::-1][::step][::-1]
    y = _log_scale([one for _, one in shown], 250, 16)
    x = Scale(0, max(len(shown), 1), 56, 700)
    parts = _log_grid(y)
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
        text(378, 276, "submissions, slowest to fastest" + (f"; one in {step} is shown" if step > 1 else ""), "axis")
    )
    faster = sum(one.low > 1 for _, one in rows)
    slower = sum(one.high < 1 for _, one in rows)
    return chart(
        *parts,
        title="Speedups over PyTorch with their 95% intervals",
        description=f"{len(rows)} timed: {faster} faster beyond doubt, {slower} slower, "
        f"{len(rows) - faster - slower} with 1 inside the interval",
        key=key,
        width=_WIDTH,
        height=284,
    )


def phases_chart(phases: Sequence[tuple[str, PhaseTiming]], key: str) -> Markup:
    """One verdict's speedups, a line each."""
    speedups = [Speedup(one.speedup, one.ci_low, one.ci_high) for _, one in phases]
    bottom = 10 + 34 * len(phases)
    scale = _log_scale(speedups, 90, 600)
    parts = [
        part
        for tick in _ticks(scale)
        for part in (
            line(scale(tick), 8, scale(tick), bottom, "grid one" if tick == 1 else "grid"),
            text(scale(tick), bottom + 18, power(tick)),
        )
    ]
    for position, ((name, _), speedup) in enumerate(zip(phases, speedups, strict=True)):
        middle = 26 + 34 * position
        tone = "faster" if speedup.low > 1 else "slower" if speedup.high < 1 else "same"
        parts.append(text(80, middle + 4, name, "label", "end"))
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
        key=key,
        width=_WIDTH,
        height=bottom + 26,
    )


def light_chart(lines: Sequence[Light], key: str) -> Markup:
    """How much of the speed of light is reached: two bars a line, forward and backward together above the forward."""
    shown = lines[:_MOST_BARS]
    x = Scale(0, 1, 300, 650)
    bottom = 8 + 36 * len(shown)
    parts = [line(x(at / 4), 4, x(at / 4), bottom, "grid one" if at == 4 else "grid") for at in range(5)]
    parts += [text(x(at / 4), bottom + 16, percent(at / 4)) for at in range(5)]
    for position, one in enumerate(shown):
        top = 8 + 36 * position
        name = one.name if len(one.name) <= _LONGEST_NAME else one.name[: _LONGEST_NAME - 1] + "…"
        parts.append(text(290, top + 18, name, "label small", "end"))
        for offset, share, kind in ((0, one.total, "total"), (15, one.forward, "forward")):
            if share is not None:
                parts.append(
                    element(
                        "rect", x=x(0), y=top + offset, width=x(share) - x(0), height=12, class_=f"light-bar {kind}"
                    )
                )
                parts.append(text(x(share) + 6, top + offset + 10, percent(share), "tick", "start"))
    return chart(
        *parts,
        title="Share of the speed of light that is reached, forward and backward together, and forward alone",
        description="; ".join(
            f"{one.name}: {percent(one.total)} forward and backward, {percent(one.forward)} forward" for one in shown
        ),
        key=key,
        width=_WIDTH,
        height=bottom + 22,
    )


def seconds_chart(seconds: StageSeconds, key: str) -> Markup:
    """One bar in as many parts as there are stages: where the time of one grading went."""
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
        title="Where the time of this grading went",
        description="; ".join(f"{name}: {took:.1f} s" for name, took in spent),
        key=key,
        width=_WIDTH,
        height=30,
    )


def rounds_chart(phase: PhaseTiming, name: str, key: str) -> Markup:
    """Each sample's time in the order taken, candidate and reference."""
    candidate, reference = phase.candidate_samples_ms, phase.reference_samples_ms
    finite = [one for one in (*candidate, *reference) if math.isfinite(one)] or [0.0]
    y = Scale(0, max(finite) * 1.08 or 1.0, 170, 12)
    x = Scale(0, max(len(candidate), len(reference), 2) - 1, 64, 620)
    parts = [line(56, y(y.high * level / 2), 630, y(y.high * level / 2), "grid") for level in range(3)]
    parts += [text(48, y(y.high * level / 2) + 4, f"{y.high * level / 2:.3g}", anchor="end") for level in range(3)]
    parts.append(text(344, 192, "samples in the order taken; milliseconds from zero", "axis"))
    parts += [
        element("rect", x=x(at) - 3, y=y(one) - 3, width=6, height=6, class_="sample reference")
        for at, one in enumerate(reference)
        if math.isfinite(one)
    ]
    parts += [
        element("circle", cx=x(at), cy=y(one), r=3.5, class_="sample candidate")
        for at, one in enumerate(candidate)
        if math.isfinite(one)
    ]
    ends = [
        (y(samples[-1]), label) for label, samples in (("candidate", candidate), ("reference", reference)) if samples
    ]
    for position, (_, label) in zip(_apart([height for height, _ in ends], 15), ends, strict=True):
        parts.append(text(636, position + 4, label, f"curve-label {label}", "start"))
    return chart(
        *parts,
        title=f"{name}: time of each sample",
        description=f"candidate {phase.candidate_ms:.4g} ms, reference {phase.reference_ms:.4g} ms in the middle; "
        f"{len(candidate)} and {len(reference)} samples",
        key=key,
        width=_WIDTH,
        height=200,
    )


# --------------------------------------------------------------------------------------------------- positions


def _log_scale(speedups: Sequence[Speedup], start: float, end: float) -> Scale:
    """A range of whole powers of two that holds all intervals, and 1."""
    low = min([one.low for one in speedups if one.low > 0], default=1.0)
    high = max([one.high for one in speedups if one.high > 0], default=1.0)
    bottom, top = math.floor(math.log2(min(low, 0.9))), math.ceil(math.log2(max(high, 1.1)))
    return Scale(2.0**bottom, 2.0**top, start, end, logarithmic=True)


def _ticks(scale: Scale) -> list[float]:
    bottom, top = round(math.log2(scale.low)), round(math.log2(scale.high))
    every = max(1, math.ceil((top - bottom) / 8))
    return [2.0**power for power in range(bottom, top + 1) if power % every == 0]


def _log_grid(y: Scale) -> list[Markup]:
    parts: list[Markup] = []
    for tick in _ticks(y):
        parts.append(line(56, y(tick), 700, y(tick), "grid one" if tick == 1 else "grid"))
        parts.append(text(48, y(tick) + 4, power(tick), anchor="end"))
    return parts


def _apart(heights: Sequence[float], distance: float) -> list[float]:
    """Labels of two lines that end near each other, moved apart."""
    if len(heights) != 2 or abs(heights[0] - heights[1]) >= distance:
        return list(heights)
    middle, half = sum(heights) / 2, distance / 2
    first_is_above = heights[0] <= heights[1]
    return [middle - half, middle + half] if first_is_above else [middle + half, middle - half]
