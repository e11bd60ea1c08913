"""Metrics over many problems: fast_p and pass@k."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""Values of p at which summaries give fast_p."""


def fast_p(speedups: Iterable[float | None], p: float, tried: int) -> float:
    """The share of `tried` problems that are correct and more than p times as fast as the reference.

    `speedups` has the best correct one of each problem; an untimed one is None and counts for p = 0 alone. From
    KernelBench (Ouyang et al., 2025, arXiv:2502.10517).
    """
    return sum(1 for speedup in speedups if (p == 0 if speedup is None else speedup > p)) / tried


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Probability that at least one of k samples drawn without replacement is correct; k <= samples.

    1 - C(n - c, k) / C(n, k), an unbiased estimate (Chen et al., 2021, arXiv:2107.03374).
    """
    if not 0 < k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples")
    return 1.0 - comb(samples - right, k) / comb(samples, k)
