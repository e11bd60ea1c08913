"""Escaped SVG elements, and the scales and labels that the charts share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from grader.report.console import clean

CHART_WIDTH = 720
"""Pixels."""


def element(name: str, *children: str | Markup, **attributes: str | float | None) -> Markup:
    """One element; `class_` is `class`, other underscores are hyphens, None leaves an attribute out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(child if isinstance(child, Markup) else escape(clean(child)) for child in children)
    return Markup(f"<{name}{given}>{inner}</{name}>")


def chart(*parts: Markup, title: str, description: str, key: str, width: int, height: int, **attributes: str) -> Markup:
    """An SVG image with a title and a description for screen readers.

    A phone shows it at half its size with letters of 21 pixels: parts leave room for these.
    """
    return element(
        "svg",
        element("title", title, id=f"{key}-title"),
        element("desc", description, id=f"{key}-desc"),
        *parts,
        class_="chart",
        id=key,
        role="img",
        aria_labelledby=f"{key}-title",
        aria_describedby=f"{key}-desc",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        **attributes,
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str, **attributes: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **attributes)


def text(x: float, y: float, content: str, class_: str = "tick", anchor: str = "middle", **attributes: str) -> Markup:
    """One line of text."""
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor, **attributes)


def path(points: Iterable[tuple[float, float]], class_: str, *, dots: bool = False) -> Markup:
    """A polyline through all points, or a dot at each, which the style sheet's line width and caps shape."""
    each = [f"{_text(x)},{_text(y)}" for x, y in points]
    drawn = "".join(f"M{one}h0" for one in each) if dots else "M" + "L".join(each)
    return element("path", d=drawn, class_=class_)


@dataclass(frozen=True)
class Scale:
    """Maps a range of values to pixels, linearly or logarithmically; values outside are clamped."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (
            (math.log2(one) for one in (self.low, self.high, max(value, self.low)))
            if self.logarithmic
            else (self.low, self.high, value)
        )
        share = (value - low) / (high - low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def data(self) -> str:
        """A linear scale as the script of the pages reads it from an attribute: low, high, start, end."""
        return f"{self.low:g} {self.high:g} {self.start:g} {self.end:g}"


def _text(value: str | float) -> str:
    return escape(clean(value)) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def apart(heights: Sequence[float], distance: float) -> list[float]:
    """The heights of two labels, moved apart to at least `distance`; otherwise unchanged."""
    if len(heights) != 2 or abs(heights[0] - heights[1]) >= distance:
        return list(heights)
    middle, half = sum(heights) / 2, distance / 2
    first_is_above = heights[0] <= heights[1]
    return [middle - half, middle + half] if first_is_above else [middle + half, middle - half]
