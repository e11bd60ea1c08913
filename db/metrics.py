"""Ranks by intervals, and metrics over many problems: the mean speedup, fast_p and pass@k."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""Values of p at which summaries give fast_p."""


class Rank(NamedTuple):
    """A rank, and whether others share it."""

    rank: int | None
    """None for what is not ranked."""
    tied: bool = False


def shared_ranks(intervals: Sequence[tuple[float, float] | None]) -> list[Rank]:
    """Ranks of intervals sorted by their lower ends, highest first; no rank for an interval that is None.

    An interval that overlaps the lower end of the leader of the preceding rank shares that rank.
    """
    ranks: list[int | None] = []
    leader, rank = None, 0
    for position, interval in enumerate(intervals, start=1):
        if interval is None:
            ranks.append(None)
            continue
        if leader is None or interval[1] < leader:
            leader, rank = interval[0], position
        ranks.append(rank)
    shared = Counter(ranks)
    return [Rank(rank, rank is not None and shared[rank] > 1) for rank in ranks]


def mean_speedup(speedups: Iterable[float], problems: int) -> float:
    """The geometric mean over `problems`; a problem without a speedup counts as 1.0.

    `speedups` has at most one per problem, each above 0; PyTorch itself would get 1.0. Slow solutions to more problems
    cannot raise the mean.
    """
    return math.exp(math.fsum(map(math.log, speedups)) / problems)


def fast_p(speedups: Iterable[float | None], p: float, problems: int) -> float:
    """The share of `problems` whose submission is correct and more than p times as fast as the reference.

    `speedups` has the best correct one of each problem; an untimed one is None and counts for p = 0 alone. From
    KernelBench (Ouyang et al., 2025, arXiv:2502.10517).
    """
    return sum(1 for speedup in speedups if (p == 0 if speedup is None else speedup > p)) / problems


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Probability that at least one of k samples drawn without replacement is correct; k <= samples.

    1 - C(n - c, k) / C(n, k), an unbiased estimate (Chen et al., 2021, arXiv:2107.03374).
    """
    if not 0 < k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)
