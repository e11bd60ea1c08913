"""Metrics over many problems: the mean speedup, fast_p and pass@k."""

from __future__ import annotations

import math
from collections.abc import Iterable

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""Values of p at which summaries give fast_p."""


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
