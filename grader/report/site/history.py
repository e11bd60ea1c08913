"""The best speedup on one problem over time: when it was raised, and by whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup

from db.against import Speedup
from db.rows import Row
from grader.report.site.formats import moment, times
from grader.report.site.svg import CHART_WIDTH, Scale, chart, element, path, text
from grader.report.site.timing_charts import LEFT, log_grid, log_scale


class Best(NamedTuple):
    """A verdict that was the best so far."""

    row: Row
    speedup: Speedup


def records(rows: Iterable[Row]) -> list[Best]:
    """The verdicts that raised the best speedup, oldest first; `rows` are on one problem and device.

    A speedup that the roofline bound rules out is left out, as on the boards.
    """
    found: list[Best] = []
    for row in sorted(rows, key=lambda one: (one.created_at, one.id)):
        speedup = row.believed("total")
        if row.correct and speedup and (not found or speedup.low > found[-1].speedup.low):
            found.append(Best(row, speedup))
    return found


def history_chart(found: Sequence[Best], until: str, key: str) -> Markup:
    """A line that rises at each record, by the interval's lower end; time goes on to `until`, ISO 8601."""
    first, last = _seconds(found[0].row.created_at), _seconds(until)
    x = Scale(first, max(last, first + 1.0), LEFT, 610)
    y = log_scale([one.speedup for one in found], 210, 16)
    points: list[tuple[float, float]] = []
    for one in found:
        place = x(_seconds(one.row.created_at))
        points += [*([(place, points[-1][1])] if points else []), (place, y(one.speedup.low))]
    points.append((x(x.high), points[-1][1]))
    parts = [*log_grid(y, 610), path(points, "curve total")]
    for one in found:
        place, height = x(_seconds(one.row.created_at)), y(one.speedup.low)
        title = f"{moment(one.row.created_at)}: {one.row.name}, {times(one.speedup.low)}"
        parts.append(element("circle", element("title", title), cx=place, cy=height, r=4, class_="dot total"))
    parts += [
        text(616, y(found[-1].speedup.low) + 4, times(found[-1].speedup.low), "value", "start"),
        text(LEFT, 234, moment(found[0].row.created_at), anchor="start"),
        text(610, 234, moment(until), anchor="end"),
        text(347, 262, "time, UTC; the lower end of the best speedup's interval", "axis"),
    ]
    return chart(
        *parts,
        title="The best speedup over time",
        description="; ".join(
            f"{moment(one.row.created_at)} {one.row.name}: {times(one.speedup.low)}" for one in found
        ),
        key=key,
        width=CHART_WIDTH,
        height=272,
    )


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()
