"""The roofline bound as boards apply it: nothing far beyond it is ranked, or counts for more."""

from __future__ import annotations

MAX_SHARE_OF_BOUND = 1.10
"""Ratio to the speedup at the roofline bound above which nothing is ranked: the bound's own error is smaller."""


def is_beyond(share_of_bound: float | None) -> bool:
    """Whether a time is so far beyond the bound that it is not ranked; False where no bound is known."""
    return share_of_bound is not None and share_of_bound > MAX_SHARE_OF_BOUND


def at_most_the_bound(speedup: float, share_of_bound: float | None) -> float:
    """The speedup, or that of the bound if it is larger: one impossible time must not dominate a mean."""
    return speedup / max(1.0, share_of_bound or 0.0)
