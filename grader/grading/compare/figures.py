"""Figures of a comparison, and how messages show them."""

from __future__ import annotations

import math


def relative(error: float, size: float) -> float:
    """The error relative to a size; 0 without an error, infinite relative to 0."""
    if error == 0.0:
        return 0.0
    return error / size if size else math.inf


def index(position: tuple[int, ...] | None) -> str:
    """`[0, 3]`."""
    return "[" + ", ".join(str(i) for i in position or ()) + "]"


def number(value: float | None) -> str:
    """Six digits; `nothing` for None."""
    return "nothing" if value is None else f"{value:.6g}"
