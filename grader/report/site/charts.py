"""The charts of the overview pages, as SVG without a script. A table on the page has the same values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from db.metrics import FAST_P
from grader.report.site.figures import FAST_P_STEPS, BoundShares, FastP, Funnel
from grader.report.site.formats import fine_percent, percent
from grader.report.site.svg import CHART_WIDTH, Scale, apart, chart, element, line, path, text

MOST_BARS = 12
"""Pairs of bars; the table below the chart has all of them."""

_SMALL_SHARE = 0.05
"""Share of the bound below which the axis is logarithmic: on a linear one such bars look alike."""

_LONGEST_NAME = 60
"""Characters that fit above a bar, on a phone too."""


def funnel_chart(funnel: Funnel) -> Markup:
    """Three bars on one scale, each below its name; a correct forward without a backward is marked."""
    x = Scale(0, 1, 0, 620)
    parts = []
    steps = (("Builds", funnel.built), ("Forward matches", funnel.forward), ("Backward matches", funnel.backward))
    for position, (name, count) in enumerate(steps):
        top = 24 + 64 * position
        share = funnel.share(count)
        parts += [
            text(0, top - 6, name, "label", "start"),
            element("rect", x=x(0), y=top, width=x(1), height=30, class_="track"),
            element("rect", x=x(0), y=top, width=x(share), height=30, class_="bar"),
            text(632, top + 22, percent(share), "value", "start"),
        ]
    parts += _missing_backward(funnel, x)
    return chart(
        *parts,
        title="Share of submissions that pass each stage",
        description="; ".join(f"{name}: {percent(funnel.share(count))} ({count})" for name, count in steps)
        + f"; forward matches but backward is missing: {percent(funnel.share(funnel.missing_backward))}",
        key="funnel",
        width=CHART_WIDTH,
        height=186,
    )


def _missing_backward(funnel: Funnel, x: Scale) -> list[Markup]:
    """The part of the third bar that is lost to missing backwards, named above it."""
    missing = funnel.share(funnel.missing_backward)
    if not missing:
        return []
    start = x(funnel.share(funnel.backward))
    end = start + x(missing)
    # Between the bar's own name and the right edge, so that large letters on a phone cover neither.
    label = text(max(end, 420), 146, f"{percent(missing)} missing", "missing-label", "end")
    return [element("rect", x=start, y=152, width=end - start, height=30, class_="missing"), label]


def fast_p_chart(figures: FastP, key: str) -> Markup:
    """Both fast_p curves, a line at each usual p, and a line that the slider moves.

    The pages' script reads the scales from `data-x` and `data-y`.
    """
    x, y = Scale(0, FAST_P_STEPS[-1], 72, 620), Scale(0, 1, 250, 16)
    parts = [line(72, y(level / 4), 620, y(level / 4), "grid") for level in range(5)]
    parts += [text(64, y(level / 4) + 4, percent(level / 4), anchor="end") for level in range(5)]
    parts += [line(x(mark), 16, x(mark), 250, "grid mark") for mark in FAST_P]
    parts += [text(x(mark), 272, f"{mark:g}") for mark in FAST_P]
    parts.append(text(x.end, 272, f"{FAST_P_STEPS[-1]:g}", anchor="end"))
    parts.append(text(346, 300, "p: how many times as fast as PyTorch", "axis"))
    ends = []
    for name, counts, speedups in (
        ("forward", figures.forward, figures.forward_speedups),
        ("total", figures.total, figures.total_speedups),
    ):
        parts.append(path(_steps(counts[0], speedups, figures.count, x, y), f"curve {name}"))
        ends.append((y(counts[-1] / max(figures.count, 1)), name))
    for position, (_, name) in zip(apart([height for height, _ in ends], 24), ends, strict=True):
        parts.append(text(628, position + 4, name, f"curve-label {name}", "start"))
    total, forward = figures.at(1.0)
    parts += [
        line(x(1), 16, x(1), 250, "cursor"),
        element("circle", cx=x(1), cy=y(forward), r=5, class_="dot forward"),
        element("circle", cx=x(1), cy=y(total), r=5, class_="dot total"),
    ]
    return chart(
        *parts,
        title="fast_p: the share that is correct and more than p times as fast as PyTorch",
        description="; ".join(
            f"p = {mark:g}: {percent(figures.at(mark)[0])} forward and backward, {percent(figures.at(mark)[1])} forward"
            for mark in FAST_P
        ),
        key=key,
        width=CHART_WIDTH,
        height=308,
        data_x=x.data(),
        data_y=y.data(),
    )


def _steps(right: int, speedups: Sequence[float], count: int, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """The points of a curve that falls by one at each speedup; steps on one pixel are merged."""
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


def bound_chart(lines: Sequence[BoundShares], key: str) -> Markup:
    """Percent of the roofline bound: two bars per line, total above forward; see `bound_axis`."""
    shown = lines[:MOST_BARS]
    low = _lowest_power(lines)
    x = Scale(low or 0, 1, 40, 620, logarithmic=low is not None)
    bottom = 78 * len(shown)
    ticks = [at / 4 for at in range(5)] if low is None else [10.0**at for at in range(round(math.log10(low)), 1)]
    parts = [text(x(tick), bottom + 20, fine_percent(tick)) for tick in ticks]
    for position, one in enumerate(shown):
        top = 78 * position
        name = one.name if len(one.name) <= _LONGEST_NAME else one.name[: _LONGEST_NAME - 1] + "…"
        parts.append(text(0, top + 20, name, "label small", "start"))
        parts += [line(x(tick), top + 28, x(tick), top + 70, "grid one" if tick == 1 else "grid") for tick in ticks]
        for middle, share, kind in ((top + 38, one.total, "total"), (top + 60, one.forward, "forward")):
            if share is not None:
                width = max(x(share) - x(x.low), 1)
                parts.append(
                    element("rect", x=x(x.low), y=middle - 7, width=width, height=14, class_=f"bound-bar {kind}")
                )
                parts.append(text(x(share) + 6, middle + 5, fine_percent(share), "tick", "start"))
    return chart(
        *parts,
        title="Share of the roofline bound: forward and backward together, and forward only",
        description="; ".join(
            f"{one.name}: {fine_percent(one.total)} forward and backward, {fine_percent(one.forward)} forward"
            for one in shown
        ),
        key=key,
        width=CHART_WIDTH,
        height=bottom + 30,
    )


def bound_axis(lines: Sequence[BoundShares]) -> str:
    """A sentence for the caption of `bound_chart`, if its axis is logarithmic."""
    return "" if _lowest_power(lines) is None else " The axis is logarithmic: each line is ten times the one before."


def _lowest_power(lines: Sequence[BoundShares]) -> float | None:
    """The power of ten at which a logarithmic axis begins; None if no share is too small for a linear one."""
    shares = [share for one in lines[:MOST_BARS] for share in (one.total, one.forward) if share]
    return 10.0 ** math.floor(math.log10(min(shares))) if shares and min(shares) < _SMALL_SHARE else None
